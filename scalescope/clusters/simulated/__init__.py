"""The real scheduler, workers and clients on a virtual clock.

`clock` owns the time and decides which thread may run; `loops` are event loops that follow it; `patches` puts it under
the standard library; `executor` runs tasks on it; `cluster` is the Dask cluster on top; `calibration` says what the
scheduler and the workers are charged.

`clock`, `loops` and `patches` need only the standard library, because they must be in place before anything else is
imported.
"""
