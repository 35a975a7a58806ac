"""The store of results: SQL for data that is queried, Parquet for raw records."""

from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

__all__ = ["RunState", "Store", "SweepRun"]
