from __future__ import annotations

from typing import Any

import pytest

from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.isolation.reduce import Reduction, SymptomReading, reduce
from scalescope.isolation.removals import Setting, checked, numbers, removals, sentence
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.model.workload import Simpler, Workload, WorkloadParameter

COSTLY = Workload(
    "costly",
    1,
    "Computes.",
    run=lambda client: None,
    parameters=(
        WorkloadParameter("items", 100, kind="int", minimum=0),
        WorkloadParameter("mode", "fast", kind="str"),
        WorkloadParameter("npartitions", None, kind="any", optional=True),
    ),
    simpler=(Simpler("cheap", "file I/O", lambda params, work_s: {"items": params["items"], "seconds": work_s / 10}),),
)
CHEAP = Workload(
    "cheap",
    1,
    "Sleeps.",
    run=lambda client: None,
    parameters=(
        WorkloadParameter("items", 100, kind="int", minimum=0),
        WorkloadParameter("seconds", 1.0, kind="float", minimum=0),
        WorkloadParameter("pause_seconds", 0.0, kind="float", minimum=0),
        WorkloadParameter("stages", 1, kind="int", minimum=1),
    ),
    modelled=True,
)
WORKLOADS = {"costly": COSTLY, "cheap": CHEAP}


def setting(
    workload: Workload, workers: int, cluster: str = "simulated", *, threads: int = 1, **params: Any
) -> Setting:
    config = params.pop("config", {})
    return Setting(workload, cluster_spec(cluster), Point(workers, threads, workload.bind(params), config))


def isolate(start: Setting, shows: Any) -> Reduction[Setting]:
    return reduce(
        start,
        moves=removals(start, WORKLOADS.__getitem__, lambda setting: 20.0),
        numbers=numbers(),
        measure=lambda words, setting: SymptomReading(not checked(setting) and shows(setting), "", checked(setting)),
    )


def words(reduction: Reduction[Setting]) -> list[str]:
    return [step.words for step in reduction.kept]


def test_everything_removable_is_removed_if_the_symptom_always_shows() -> None:
    reduction = isolate(
        setting(
            COSTLY,
            300,
            "local",
            threads=2,
            items=600,
            mode="slow",
            config={"distributed.scheduler.work-stealing": False},
        ),
        lambda setting: True,
    )
    assert words(reduction) == [
        "local cluster → simulated",
        "costly → cheap, without file I/O",
        "distributed.scheduler.work-stealing=False removed",
        "threads per worker 2 → 1",
        "sleeps of 2 s → 0.1 s",
        "workers and items together 300 → 2",
        "items 4 → 2",
    ]
    assert reduction.state == setting(CHEAP, 2, items=2, seconds=0.1)


def test_the_cheapest_cluster_that_still_shows_the_symptom_is_chosen() -> None:
    reduction = isolate(setting(CHEAP, 2, "local", items=2, seconds=0.1), lambda s: s.cluster != SimulatedSpec())
    assert reduction.state.cluster == LightSpec()
    reduction = isolate(setting(CHEAP, 2, "local", items=2, seconds=0.1), lambda s: s.cluster == LocalSpec())
    assert reduction.state.cluster == LocalSpec()


def test_a_cluster_too_small_for_the_workers_is_not_tried() -> None:
    start = setting(CHEAP, 3000, items=1)
    tried = [change for move in removals(start, WORKLOADS.__getitem__, lambda s: 0.0) if (change := move(start))]
    assert all(change[1].cluster.kind == "simulated" for change in tried)


def test_parameters_that_the_symptom_needs_are_kept() -> None:
    reduction = isolate(
        setting(COSTLY, 10, items=100, mode="slow", npartitions=2), lambda s: s.point.params.get("npartitions") == 2
    )
    assert reduction.state == setting(COSTLY, 2, items=2, npartitions=2)


def test_shortened_durations_keep_their_ratio() -> None:
    start = setting(CHEAP, 2, items=2, seconds=10.0, pause_seconds=5.0)
    reduction = isolate(start, lambda setting: True)
    assert reduction.state == setting(CHEAP, 2, items=2, seconds=0.1, pause_seconds=0.05)


def test_sleeps_stay_longer_if_short_ones_hide_the_symptom() -> None:
    reduction = isolate(setting(CHEAP, 2, items=2, seconds=10.0), lambda s: s.point.params["seconds"] >= 1)
    assert reduction.state.point.params["seconds"] == 1.0


@pytest.mark.parametrize("threads", [1, 3])
def test_items_never_shrink_below_the_number_of_threads_if_there_were_enough_at_the_start(threads: int) -> None:
    """One item on seven workers would leave six idle whatever the library does."""
    seen: list[Point] = []
    isolate(
        setting(CHEAP, 40, items=500, threads=threads), lambda s: seen.append(s.point) is None and s.point.workers > 6
    )
    assert seen
    assert all((point.items or 0) >= point.threads for point in seen)


def test_items_may_shrink_further_if_there_were_fewer_than_workers_at_the_start() -> None:
    assert isolate(setting(CHEAP, 40, items=8), lambda s: s.point.workers >= 20).state.point.items == 1


def test_workers_and_items_that_are_equal_stay_equal() -> None:
    """101 items on 101 workers is the threshold of a partition rule; 101 on 93 would be one of severity."""
    reduction = isolate(setting(CHEAP, 300, items=300), lambda s: (s.point.items or 0) > 100 and s.point.workers > 92)
    assert (reduction.state.point.workers, reduction.state.point.items) == (101, 101)


def test_settings_with_the_same_values_are_equal() -> None:
    assert setting(CHEAP, 2) == setting(CHEAP, 2, items=100)
    assert len({setting(CHEAP, 2), setting(CHEAP, 2), setting(CHEAP, 3)}) == 2
    point = setting(CHEAP, 2, items=3).point
    assert setting(CHEAP, 2, items=3).sweep.expand(CHEAP) == (point,)
    assert Setting.of(Sweep("cheap", seed=4), point, CHEAP).sweep.seed == 4


def test_a_setting_that_cannot_be_run_is_explained() -> None:
    assert checked(setting(CHEAP, 2)) == ""
    assert "workers" in checked(setting(CHEAP, 400, "local"))


def test_a_failed_trial_is_described_in_one_sentence() -> None:
    failed = Trial("k", Point(2, 1, {"items": 3}), 0, False, TrialState.FAILED, "ValueError: no\nsecond line")
    assert sentence(failed) == "2 workers, 3 items: failed, ValueError: no"
