"""Slurm: its commands, its jobs and what its answers mean. The clusters and the work pool use this package."""
