"""Pure functions over records: work and span, worker time, scaling, statistics. No I/O, no Dask."""
