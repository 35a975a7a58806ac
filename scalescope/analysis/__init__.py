"""Computations on records, without I/O and without Dask: work and span, worker time, scaling, statistics."""
