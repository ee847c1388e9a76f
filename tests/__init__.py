"""Tests, and what they are made with."""
