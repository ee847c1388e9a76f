"""Vendor-shaped torch installations for machines without the vendor's hardware."""
