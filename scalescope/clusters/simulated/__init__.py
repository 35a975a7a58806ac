"""The real scheduler, workers and clients on a virtual clock.

`clock`, `loops` and `patches` import only the standard library: they must be in place before any other import.
"""
