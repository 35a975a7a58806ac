"""Says what a graph will cost before any of it is computed."""
