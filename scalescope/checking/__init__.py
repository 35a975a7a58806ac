"""Says what a graph will cost before anything of it is computed."""
