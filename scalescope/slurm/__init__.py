"""Slurm: its commands, its jobs and what its answers mean. The clusters and the work pool use this package."""

PATIENCE_S = 600.0  # seconds for which Slurm's controller may be away, as during a restart, before that is an error
CLOSING_S = 2.5  # seconds for an answer when a cluster closes: its driver is killed after 9
