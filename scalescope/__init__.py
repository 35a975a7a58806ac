"""Scalescope finds where a Dask or Beam-on-Dask workload stops scaling, and why."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import Any

__version__ = "0.1.0"


def diagnose(client: Any = None, name: str = "") -> AbstractContextManager[Any]:
    """Record what a cluster does while a block of code runs, and print what is wrong, and why.

    ```
    with scalescope.diagnose(client) as found:
        frame.groupby("name").x.mean().compute()
    found.findings, found.tasks, found.report("report.html")
    ```

    The client can be connected to any Dask cluster of distributed 2023.5 or later. Without one, it is that of the
    Prefect flow that runs here (`DaskTaskRunner`), or Dask's current one. An exception of the block is re-raised after
    the diagnosis. By default, the name of the block is the line where it begins.
    """
    found: AbstractContextManager[Any] = resolve_name("scalescope.own_code.diagnose:diagnose")(client, name)
    return found
