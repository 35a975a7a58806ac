"""Workers in pods of Kubernetes, which the Dask operator starts."""
