"""Workers to retire when the operator only says how many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scalescope.clusters.kubernetes.retire_order import retire_next


def test_exactly_the_chosen_workers_are_retired_whoever_asks_first() -> None:
    known = {f"tls://10.0.0.{i}:1": SimpleNamespace(host=f"10.0.0.{i}") for i in range(4)}
    scheduler: Any = SimpleNamespace(workers=known)
    retire_next(["10.0.0.1", "10.0.0.3", "10.0.0.2"], dask_scheduler=scheduler)
    one, two = scheduler.workers_to_close(n=1), scheduler.workers_to_close(n=2, attribute="address")
    assert sorted(one + two) == ["tls://10.0.0.1:1", "tls://10.0.0.2:1", "tls://10.0.0.3:1"]
    assert len(scheduler.workers_to_close(n=3)) == 3  # asked again: the first answer was lost
    for address in one + two:
        del known[address]
    assert scheduler.workers_to_close(n=3) == []  # no other worker
