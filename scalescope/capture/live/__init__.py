"""The present state of a cluster, and its tasks that stand still."""
