"""Hundreds of real workers in real time, sharing few processes.

`process` is the code of these processes; `cluster` starts and scales them, and measures what this host can emulate.
"""
