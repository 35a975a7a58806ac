"""Clusters whose workers are jobs of a batch system."""
