from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.cost import Budget, Cost, Prices, Spending, cost, estimate, spent
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import Trial, TrialState

PRICES = Prices({"gpu": 3.0, "cpu": 0.1}, "EUR")
SWEEP = Sweep("mine", cluster=SlurmSpec(partition="gpu", workers_per_job=500), trial_timeout_s=360.0)
HOUR = Point(10)


def trial(point: Point, seconds: float, repeat: int = 0, state: TrialState = TrialState.VALID) -> Trial:
    return Trial(f"{point.id}-r{repeat}", point, repeat, False, state, reason="x", real_s=seconds)


def planned(*points: Point) -> list[PlannedTrial]:
    return [PlannedTrial(i, point, 0) for i, point in enumerate(points)]


def test_ten_workers_for_one_hour_cost_ten_worker_hours() -> None:
    assert cost(SWEEP.cluster, HOUR, 3600, PRICES) == Cost(1, 3600, 10, 10, 30)


def test_core_hours_count_threads_unless_the_specification_asks_for_cores() -> None:
    assert cost(SlurmSpec(partition="gpu"), Point(10, 4), 3600, PRICES).core_hours == 40
    spec = SlurmSpec(partition="gpu", cores=32, workers_per_job=4)
    assert cost(spec, Point(10, 4), 3600, PRICES).core_hours == 80


def test_core_hours_use_the_cores_that_a_trial_had_rather_than_those_specified() -> None:
    facts = {"waited_for_workers_s": 0.0, "held_worker_s": 0.0}
    ran = [replace(trial(HOUR, 3600), facts={"cluster": {**facts, "cores_per_worker": cores}}) for cores in (64, None)]
    assert [spent(SWEEP, [each], PRICES).core_hours for each in ran] == [640, 10]


@pytest.mark.parametrize("kind", ["simulated", "light", "local"])
def test_workers_on_this_machine_cost_only_time(kind: str) -> None:
    assert cost(cluster_spec(kind), Point(300), 60, Prices()) == Cost(1, 60, 0, 0, 0)


def test_the_cost_of_a_partition_without_a_price_says_that_the_price_is_unknown() -> None:
    unknown = cost(SlurmSpec(partition="new"), HOUR, 3600, PRICES)
    assert unknown.money is None
    assert "price not known" in (unknown + Cost()).sentence(PRICES)
    assert PRICES.of(SlurmSpec(partition="cpu,gpu")) == 3.0
    assert PRICES.of(SlurmSpec(partition="cpu,new")) is None
    assert Prices({"default": 1.0}).of(SlurmSpec(partition="cpu,new")) == 1.0
    assert Prices({"slurm": 2.0}).of(SlurmSpec()) == 2.0


NODES = Prices({"kubernetes": 7.0}, "EUR", {"big": 4.0, "gpu": 10.0}, {"gpu": 3.0})
TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(
    ("pods", "price"),
    [
        ([{"instance_type": "big", "node_share": 0.25}], 1.0),
        ([{"instance_type": "gpu", "node_share": 0.5}], 5.0),
        ([{"instance_type": "gpu", "node_share": 0.5, "spot": True}], 1.5),
        ([{"instance_type": "big", "node_share": 0.25, "spot": True}], 1.0),  # has no price of its own
        ([{"instance_type": "big"}], 4.0),  # the node may not be read
        ([{"instance_type": "big", "node_share": 0.5}, {"instance_type": "gpu", "node_share": 0.5}], 3.5),
        ([{"instance_type": "big", "node_share": 0.25}, {"instance_type": "new"}], 4.0),
        ([], 7.0),
    ],
)
def test_a_worker_on_kubernetes_costs_its_share_of_the_node(pods: list[dict[str, Any]], price: float) -> None:
    found = cost(KubernetesSpec(), HOUR, 3600, NODES, pods)
    assert (found.worker_hours, found.money) == (10, pytest.approx(10 * price))
    done = replace(trial(HOUR, 1800), facts={"cluster": {"pods": pods}})
    sweep = replace(SWEEP, cluster=KubernetesSpec())
    assert spent(sweep, [done], NODES).money == pytest.approx(5 * price)
    assert estimate(sweep, planned(HOUR, HOUR), NODES, [done]).cost.money == pytest.approx(10 * price)


def test_before_the_first_trial_a_worker_is_priced_as_a_whole_node_of_its_selector() -> None:
    assert NODES.of(KubernetesSpec(node_selector=f"{TYPE}=big")) == 4.0
    assert NODES.of(KubernetesSpec(node_selector=f"{TYPE}=gpu,cloud.google.com/gke-spot=true")) == 3.0
    assert NODES.of(KubernetesSpec(node_selector=f"{TYPE}=gpu,cloud.google.com/gke-preemptible=true")) == 3.0
    assert NODES.of(KubernetesSpec(node_selector="cloud.google.com/gke-spot=true")) == 7.0
    assert Prices(node_hour={"big": 1.0}).of(KubernetesSpec()) is None


def test_an_estimate_without_measured_trials_is_an_upper_bound() -> None:
    found = estimate(SWEEP, planned(Point(10), Point(20)), PRICES)
    assert found.cost == Cost(2, 720, 3, 3, 9)
    assert found.sentence(SWEEP, PRICES) == (
        "at most 3.0 core-hours, 9.00 EUR, 0.2 h for 2 trials (each counted with the full time limit of 360 s, after "
        "600 s in which workers wait for the others)"
    )


def test_an_estimate_uses_the_mean_time_of_points_already_measured() -> None:
    done = [trial(Point(10), 30), trial(Point(10), 42, 1)]
    found = estimate(SWEEP, planned(Point(10), Point(20)), PRICES, done)
    assert found.cost.time_s == 36 + 360
    assert "never measured" in found.sentence(SWEEP, PRICES)
    assert estimate(SWEEP, planned(Point(10)), PRICES, done).sentence(SWEEP, PRICES).startswith("about 0.1 core-hours")


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1e5)), max_size=8))
def test_the_total_cost_is_the_sum_over_all_trials(shapes: list[tuple[int, float]]) -> None:
    done = [trial(Point(workers), seconds, i) for i, (workers, seconds) in enumerate(shapes)]
    total = spent(SWEEP, done, PRICES)
    assert total.trials == len(done)
    assert total.worker_hours == pytest.approx(sum(w * s for w, s in shapes) / 3600)
    assert total.money == pytest.approx(3 * total.worker_hours)


# ------------------------------------------------------------------ budgets


@pytest.mark.parametrize(
    ("limits", "stops"),
    [
        ({}, ""),
        ({"core_hours": 100}, ""),
        ({"core_hours": 5}, "5 of 5 core-hours"),
        ({"core_hours": 9}, "5 of 9 core-hours are spent, and the next trial would use about 5"),
        ({"money": 14}, "15 of 14 EUR"),
        ({"hours": 0.5}, "0.5 of 0.5 h"),
        ({"hours": 0}, "0.5 of 0 h"),
    ],
)
def test_a_budget_stops_the_trial_that_would_exceed_it(limits: dict[str, float], stops: str) -> None:
    budget = Budget.from_mapping(limits, PRICES, [SWEEP.cluster])
    reason = budget.stops(SWEEP, Spending.of(SWEEP, [trial(HOUR, 1800)], PRICES), planned(HOUR)[0])
    assert reason.startswith(stops) if stops else reason == ""


def test_a_budget_counts_a_trial_of_an_unmeasured_point_with_its_time_limit() -> None:
    budget = Budget.from_mapping({"core_hours": 5.01}, PRICES)
    assert budget.stops(SWEEP, Spending(), planned(Point(50))[0]) == ""
    assert " 360 s" in budget.stops(SWEEP, Spending(), planned(Point(500))[0])
    assert Budget.from_mapping({"core_hours": 0}, PRICES).stops(SWEEP, Spending(), planned(HOUR)[0]) != ""


def test_workers_that_run_while_others_are_missing_cost_money_and_queued_ones_do_not() -> None:
    sweep = replace(SWEEP, cluster=SlurmSpec(partition="gpu", workers_per_job=2))
    facts = {"cluster": {"waited_for_workers_s": 3000.0, "held_worker_s": 1800.0}}
    found = spent(sweep, [replace(trial(Point(4), 3600), facts=facts)], PRICES)
    assert found.core_hours == (4 * 600 + 1800) / 3600
    bound = estimate(sweep, planned(Point(4), Point(2)), PRICES)
    assert bound.cost.core_hours == pytest.approx((6 * 360 + 3 * 600) / 3600)  # one job waits for no other
    assert " 600 s in which workers wait" in bound.sentence(sweep, PRICES)


@pytest.mark.parametrize("data", [{"cores": 1}, {"money": -1}, {"hours": "1"}, [1], {"core_hours": float("nan")}])
def test_an_invalid_budget_is_refused(data: Any) -> None:
    with pytest.raises(InvalidField, match="budget"):
        Budget.from_mapping(data, PRICES)


def test_a_money_budget_for_a_cluster_without_a_price_is_refused() -> None:
    with pytest.raises(InvalidField, match="new has no price"):
        Budget.from_mapping({"money": 1}, PRICES, [SlurmSpec(partition="new")])
    Budget.from_mapping({"money": 1}, PRICES, [cluster_spec("light")])


@pytest.mark.parametrize(
    "data", [{"worker_hour": {"gpu": -1}}, {"node_hour": [1]}, {"hourly": {}}, {"currency": 1}, None]
)
def test_an_invalid_price_table_is_refused(data: Any) -> None:
    with pytest.raises(InvalidField, match="prices"):
        Prices.from_mapping(data)
