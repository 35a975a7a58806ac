"""Pure functions over records: work and span, worker time, verdicts. No I/O, no Dask."""
