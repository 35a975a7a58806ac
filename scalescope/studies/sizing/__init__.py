"""Chooses a cluster: workers, threads and memory, from a run on another cluster."""
