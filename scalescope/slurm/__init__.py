"""Slurm: its commands, its jobs, and what it means by what it says; beneath the clusters and the work pool."""

PATIENCE_S = 600.0
"""Seconds for which Slurm's controller may be away, while it restarts, before that is an error."""
