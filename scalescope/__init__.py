"""Scalescope finds where a Dask or Beam-on-Dask workload stops scaling, and why."""

from __future__ import annotations

__version__ = "0.1.0"
