"""Slurm: its commands, its jobs, and what it means by what it says; beneath the clusters and the work pool."""
