"""How much of a task's time its worker spent on packing and unpacking, and links that transfers share."""

from __future__ import annotations

from typing import Any

import pytest

from scalescope.analysis.fitted_costs import FittedCosts
from scalescope.analysis.packing import packing_in_tasks
from scalescope.clusters.simulated.links import Links
from scalescope.studies.prediction import link_speed

MB = 1_000_000
COST = 1e-9  # seconds per byte: a millisecond per MB


def fetching(records: Any, threads: int = 1) -> Any:
    """`b` makes a result of 100 MB and computes on; `a` computes meanwhile, and then uses that result."""
    made = {"worker": "b", "assigned": 0.0, "start": 0.0, "stop": 1.0, "nbytes": 100 * MB, "prefix": "make"}
    busy = [
        {"worker": worker, "assigned": 0.0, "start": 1.0, "stop": 2.0 + more, "prefix": "busy"}
        for worker, more in (("b", 0.1), ("a", 0.1))
    ]
    used = {"worker": "a", "assigned": 1.0, "transfer": 0.4, "start": 2.1, "stop": 3.1, "prefix": "use"}
    tables = records([made, *busy, used], {"a": {"nthreads": threads}, "b": {"nthreads": threads}})
    tables["dependencies"] = {"task": [3], "needs": [0]}
    return tables


def test_tasks_are_prolonged_while_their_worker_packs_or_unpacks(records: Any) -> None:
    assert packing_in_tasks(fetching(records), COST) == pytest.approx([0.0, 0.1, 0.1, 0.0])


def test_packing_is_divided_among_threads_and_weighted_by_the_cpu_share_of_tasks(records: Any) -> None:
    assert packing_in_tasks(fetching(records, threads=2), COST)[1] == pytest.approx(0.05)
    assert packing_in_tasks(fetching(records), COST, 0.5)[1] == pytest.approx(0.05)
    assert not packing_in_tasks(fetching(records), COST, 0.0).any()


def test_no_task_is_prolonged_by_more_than_it_took(records: Any) -> None:
    assert packing_in_tasks(fetching(records), 1e-6) == pytest.approx([0.0, 1.1, 1.1, 1.0])


def shuffled(records: Any, bandwidth: float, workers: int = 4) -> tuple[Any, float]:
    """Each worker makes a result, and then fetches those of all others at once; and its bytes per recorded second."""
    names = [f"w{number}" for number in range(workers)]
    made = [{"worker": name, "start": 0.0, "stop": 1.0, "nbytes": 50 * MB} for name in names]
    used = [{"worker": name, "assigned": 1.0, "start": 9.0, "stop": 10.0, "transfer": 1.0} for name in names]
    tables = records(made + used, {name: {} for name in names})
    pairs = [(workers + task, need) for task in range(workers) for need in range(workers)]
    tables["dependencies"] = {"task": [task for task, _ in pairs], "needs": [need for _, need in pairs]}
    asked, _ = link_speed._asked(tables)
    took = link_speed._played_s(asked, Links(bandwidth, 0.0005, COST)) / workers
    tables["tasks"]["transfer"] = [0.0] * workers + [took] * workers
    return tables, (workers - 1) * 50 * MB / took


@pytest.mark.parametrize("bandwidth", [100e6, 1e9])
def test_the_bandwidth_of_links_that_transfers_shared_is_found(records: Any, bandwidth: float) -> None:
    tables, slow = shuffled(records, bandwidth)
    assert slow < 0.8 * bandwidth
    assert link_speed.bandwidth(tables, FittedCosts(slow, cpu_s_per_byte=COST)) == pytest.approx(bandwidth, rel=0.05)


def test_the_fitted_bandwidth_is_kept_if_it_explains_the_transfers_or_cannot_be_checked(records: Any) -> None:
    tables, slow = shuffled(records, 100e6)
    assert link_speed.bandwidth(tables, FittedCosts(200e6, cpu_s_per_byte=COST)) == 200e6
    assert link_speed.bandwidth(tables, FittedCosts(slow)) == slow
    assert link_speed.bandwidth(tables, FittedCosts()) is None
