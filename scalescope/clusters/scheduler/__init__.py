"""A scheduler that runs already."""
