"""Scalescope finds where a Dask or Beam-on-Dask workload stops scaling, and why."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import Any

__version__ = "0.1.0"


def diagnose(client: Any, name: str = "") -> AbstractContextManager[Any]:
    """Record what a cluster does while a block of code runs, and say what is wrong, and why.

    ```
    with scalescope.diagnose(client) as found:
        frame.groupby("name").x.mean().compute()
    found.findings, found.tasks, found.report("report.html")
    ```

    Args:
        client: A `distributed.Client`, connected to any Dask cluster.
        name: What the block is called; by default the line where it begins.
    """
    found: AbstractContextManager[Any] = resolve_name("scalescope.run.block:diagnose")(client, name)
    return found
