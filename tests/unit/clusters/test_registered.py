"""Reading a scheduler's workers from another thread than its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sortedcontainers import SortedDict

from scalescope.clusters.base import registered


def test_a_worker_that_is_just_being_added_is_no_error() -> None:
    workers: Any = SortedDict({"tls://a:1": "a"})
    workers._list_add("tls://b:1")  # `workers["tls://b:1"] = ...` stands between its two statements
    scheduler: Any = SimpleNamespace(workers=workers)
    with pytest.raises(KeyError):  # as distributed's own way to them does
        list(workers.values())
    assert registered(scheduler) == ["a"]
