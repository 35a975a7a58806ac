"""A running scheduler."""
