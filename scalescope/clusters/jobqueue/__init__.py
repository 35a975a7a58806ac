"""Clusters whose workers are jobs of a batch system: Slurm, and six others that `systems` describes."""
