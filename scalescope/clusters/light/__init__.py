"""Hundreds of real workers in real time, sharing few processes.

`process` is what runs in each of those processes, `cluster` starts and scales them, `limit` measures what this host can
emulate.
"""
