"""Does a pull request make a workload slower, and why? Base and head are compared, and the answer is a comment."""
