"""The vocabulary: what is run, where, at which points, and what was learnt. Standard library only."""
