"""The device flagos."""
