"""Reports of results."""
