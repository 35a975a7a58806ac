"""Clusters that a server of Dask Gateway starts."""
