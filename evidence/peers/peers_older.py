"""A pytest plugin for `peers.py`: what the tests of distributed 2.30.1 import, and distributed has no more.

They are the last ones in a package. A test skips where it uses a function that has no successor.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import dask.utils
import pytest
from distributed import utils, utils_test, worker, worker_memory
from distributed.utils_test import cleanup, client, cluster_fixture, loop, loop_in_thread, tls_client

__all__ = ["cleanup", "client", "cluster_fixture", "loop", "loop_in_thread", "tls_client"]  # fixtures that they need


def _unchanged(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda test: test


def _gone(name: str) -> Callable[..., None]:
    def skips(*_: Any, **__: Any) -> None:
        pytest.skip(f"distributed has no {name} any more")

    return skips


# The tests that these decorate are coroutines, which `peers_plugin` leaves out
utils_test.gen_cluster = utils_test.gen_test = utils_test.gen_tls_cluster = _unchanged
utils.mp_context = utils.get_mp_context()
utils.tmpfile = dask.utils.tmpfile
utils.tokey = str
worker.parse_memory_limit = worker_memory.parse_memory_limit
for module, name in (
    ("dask.optimization", "SubgraphCallable"),
    ("distributed", "Executor"),
    ("distributed.utils_test", "async_wait_for"),
    ("distributed.utils_test", "geninc"),
    ("distributed.utils_test", "pristine_loop"),
    ("distributed.utils_test", "wait_for"),
):
    setattr(importlib.import_module(module), name, _gone(name))
