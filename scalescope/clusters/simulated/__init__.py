"""The real scheduler, workers and clients on a virtual clock.

`clock`, `loops` and `patches` import only the standard library, because they must be loaded before anything else.
"""
