from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import cluster_spec
from scalescope.model.parameters import declared
from scalescope.model.sweep import OWN_AXES, ZERO_LENGTH, Point, Sweep, digest
from scalescope.model.workload import Workload, WorkloadParameter

WORKLOAD = Workload(
    name="sleep",
    version=1,
    summary="Sleeps.",
    run=print,
    parameters=(
        WorkloadParameter("items", 10, "Items.", kind="int", minimum=0),
        WorkloadParameter("seconds", 1.0, "Seconds per item.", kind="float", minimum=0),
        WorkloadParameter("mode", "fast", "How.", choices=("fast", "slow")),
        WorkloadParameter("partitions", None, "Partitions.", kind="int", minimum=1, optional=True),
    ),
)


def sweep(**fields: Any) -> Sweep:
    return Sweep.from_mapping({"workload": "sleep", **fields})


def test_a_sweep_expands_to_all_combinations_of_its_axes() -> None:
    points = sweep(axes={"workers": [1, 2], "items": [5, 6, 7]}).expand(WORKLOAD)
    assert [(point.workers, point.items) for point in points] == [(1, 5), (1, 6), (1, 7), (2, 5), (2, 6), (2, 7)]
    assert points[0].params == {"items": 5, "seconds": 1.0, "mode": "fast", "partitions": None}


def test_items_per_worker_sets_the_items_of_each_point() -> None:
    points = sweep(axes={"workers": [2, 10], "items_per_worker": [1, 2.5]}).expand(WORKLOAD)
    assert [(point.workers, point.items) for point in points] == [(2, 2), (2, 5), (10, 10), (10, 25)]
    with pytest.raises(InvalidField, match="no parameter 'items'"):
        sweep(axes={"items_per_worker": [1]}).expand(Workload("plain", 1, "Plain.", print))


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("1..4", (1, 2, 3, 4)),
        ("1,2,8..16:4", (1, 2, 8, 12, 16)),
        (["1..3", 8], (1, 2, 3, 8)),
        ([1, 2], (1, 2)),
        (3, (3,)),
        (["a,b", "true"], ("a,b", "true")),
    ],
)
def test_an_axis_is_a_list_a_value_or_text_with_ranges(given: Any, values: tuple[Any, ...]) -> None:
    assert sweep(axes={"workers": given}).axes == {"workers": values}
    assert sweep(axes={"environment": "dask==2024.8.0,<2025"}).axes == {"environment": ("dask==2024.8.0,<2025",)}


@pytest.mark.parametrize("given", ["4..1", "1..x", "1,,2", "", [], {}, ["1..3", 2], "0..100000"])
def test_an_invalid_value_of_an_axis_is_refused(given: Any) -> None:
    with pytest.raises(InvalidField, match=r"^axes\.workers"):
        sweep(axes={"workers": given})


def test_zero_length_tasks_need_a_cluster_with_a_virtual_clock() -> None:
    axes = {"workers": [2], ZERO_LENGTH: [True]}
    [point] = sweep(axes=axes).expand(WORKLOAD)
    assert point.has_zero_length_tasks
    with pytest.raises(InvalidField, match=ZERO_LENGTH):
        sweep(axes=axes, cluster=LocalSpec()).expand(WORKLOAD)
    with pytest.raises(InvalidField, match="true or false"):
        sweep(axes={"workers": [2], ZERO_LENGTH: ["yes"]}).expand(WORKLOAD)


def test_dask_configuration_and_threads_are_axes() -> None:
    key = "distributed.scheduler.worker-saturation"
    points = sweep(axes={"threads_per_worker": [1, 4], key: [1.1, "inf"]}).expand(WORKLOAD)
    assert [(point.threads, point.dask_config[key]) for point in points] == [(1, 1.1), (1, "inf"), (4, 1.1), (4, "inf")]


def test_a_sweep_can_have_further_points_and_fixed_parameters() -> None:
    points = sweep(axes={"workers": [1]}, points=[{"workers": 7, "items": 3}], params={"seconds": 2}).expand(WORKLOAD)
    assert [(point.workers, point.items, point.params["seconds"]) for point in points] == [(1, 10, 2.0), (7, 3, 2.0)]


def test_the_same_point_given_twice_runs_once() -> None:
    assert len(sweep(axes={"workers": [3]}, points=[{"workers": 3}]).expand(WORKLOAD)) == 1


def test_the_order_of_trials_is_random_interleaved_and_repeatable_from_the_seed() -> None:
    question = {"axes": {"workers": list(range(1, 30))}, "repeats": 3, "warmups": 1, "seed": 5}
    plan = sweep(**question).plan(WORKLOAD)
    assert plan == sweep(**question).plan(WORKLOAD)
    assert plan != sweep(**{**question, "seed": 6}).plan(WORKLOAD)
    assert [trial.index for trial in plan] == list(range(4 * 29))
    assert all(trial.warmup for trial in plan[:29])
    for block in range(4):
        part = plan[29 * block : 29 * (block + 1)]
        assert {trial.point.workers for trial in part} == set(range(1, 30))
        assert len({trial.repeat for trial in part}) == 1
    orders = [[trial.point.workers for trial in plan[29 * block : 29 * (block + 1)]] for block in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    assert len({trial.key for trial in plan}) == len(plan)


def test_a_cluster_is_given_by_name_or_as_a_mapping() -> None:
    assert cluster_spec("simulated") == SimulatedSpec()
    assert cluster_spec({"kind": "local", "memory_limit_mb": 512}) == LocalSpec(memory_limit_mb=512)
    assert cluster_spec(LightSpec(hosts=3).to_mapping()) == LightSpec(hosts=3)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5, unique=True), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_sweep_and_its_points_survive_json(workers: list[int], repeats: int, seed: int) -> None:
    question = sweep(axes={"workers": workers}, repeats=repeats, seed=seed)
    again = Sweep.from_mapping(json.loads(json.dumps(question.to_mapping())))
    assert again == question
    assert again.id == question.id
    for point in question.expand(WORKLOAD):
        assert Point.from_mapping(json.loads(json.dumps(point.to_mapping()))) == point


GROUPS = {"kind": "kubernetes", "groups": {"gpu": {"gpus": 1}, "spot": {"tolerations": ["spot"]}}}


def of_groups(**axes: Any) -> dict[str, Any]:
    return {"axes": {name.replace("_", "workers@"): value for name, value in axes.items()}, "cluster": GROUPS}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"axes": {"workers": []}}, "axes.workers", ""),
        ({"axes": {"workers": [1, 1]}}, "axes.workers", ""),
        ({"axes": {"workers": [[1]]}}, "axes.workers[0]", ""),
        ({"axes": {"workers": [float("nan")]}}, "axes.workers[0]", ""),
        ({"axes": [1]}, "axes", ""),
        ({"points": {"workers": 1}}, "points", ""),
        ({"params": 3}, "params", ""),
        ({"repeats": 0}, "repeats", ""),
        ({"repeats": True}, "repeats", ""),
        ({"warmups": -1}, "warmups", ""),
        ({"seed": -1}, "seed", ""),
        ({"trial_timeout_s": 0}, "trial_timeout_s", ""),
        ({"trial_timeout_s": float("inf")}, "trial_timeout_s", ""),
        ({"workload": ""}, "workload", ""),
        ({"cluster": "lokal"}, "cluster.kind", "did you mean 'local'"),
        ({"cluster": {"memory": 1}}, "cluster.kind", ""),
        ({"cluster": {"kind": "local", "memory": 1}}, "cluster.memory", ""),
        ({"cluster": {"kind": "local", "memory_limit_mb": -1}}, "cluster.memory_limit_mb", ""),
        ({"cluster": {"kind": "simulated", "task_cost": "free"}}, "cluster.task_cost", ""),
        ({"cluster": {"kind": "simulated", "durations": {"f": 1}}}, "cluster.durations", ""),
        ({"cluster": {"kind": "light", "hosts": -1}}, "cluster.hosts", ""),
        ({"axis": {}}, "axis", ""),
        ({"axes": {"worker": [1]}}, "axes.worker", "did you mean 'workers'"),
        ({"axes": {"workers": [0]}}, "axes.workers", "from 1 to 5000"),
        ({"axes": {"workers": [1.5]}}, "axes.workers", "whole number"),
        ({"axes": {"items": [-1]}}, "axes.items", "at least 0"),
        ({"axes": {"mode": ["quick"]}}, "axes.mode", "'fast', 'slow'"),
        ({"axes": {"items": [1], "items_per_worker": [1]}}, "axes.items_per_worker", "only one of"),
        ({"axes": {"workers": [1]}, "params": {"second": 1}}, "params.second", "did you mean 'seconds'"),
        ({"axes": {"workers": [1]}, "params": {"seconds": "1"}}, "params.seconds", "finite number"),
        ({"axes": {"fault": ["kill-worker"]}}, "axes.fault", "a simulated cluster supports no faults"),
        ({"axes": {"fault": ["kill-wrker"]}, "cluster": "local"}, "axes.fault", "one of none, kill-worker, pause-wor"),
        ({"axes": {"fault": ["delay-network"]}, "cluster": "local"}, "axes.fault", "only root can"),
        ({"points": [{"workers": 1, "itemz": 1}]}, "points[0].itemz", "did you mean 'items'"),
        ({"axes": {"workers@gpu": 1}}, "axes.workers@gpu", "this simulated cluster has none"),
        (of_groups(_gpv=1), "axes.workers@gpv", "did you mean 'workers@gpu'"),
        (of_groups(_gpu=-1), "axes.workers@gpu", "at least 0"),
        (of_groups(workers=3, _gpu=2, _spot=2), "axes.workers", "at least 4"),
        (of_groups(workers=3, _gpu=1, cluster="simulated"), "axes.workers@gpu", "has none"),
        ({}, "axes", "at least one axis"),
        ({"axes": {"workers": list(range(1, 400)), "items": list(range(400))}}, "axes", "at most 100000 trials"),
    ],
)
def test_an_invalid_field_of_a_sweep_is_refused_by_its_name(fields: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidField) as caught:
        sweep(**fields).expand(WORKLOAD)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)
    assert said in str(caught.value)


def test_workers_of_a_group_count_among_all_workers_of_a_point() -> None:
    axes = {"workers": [4, 8], "workers@gpu": [0, 4]}
    points = sweep(axes=axes, cluster=GROUPS).expand(WORKLOAD)
    assert [(point.workers, point.groups["gpu"]) for point in points] == [(4, 0), (4, 4), (8, 0), (8, 4)]
    assert points[1].values["workers@gpu"] == 4
    assert Point.from_mapping(json.loads(json.dumps(points[1].to_mapping()))) == points[1]
    assert len({point.id for point in points}) == 4
    [without] = sweep(axes={"workers": [4]}, cluster=GROUPS).expand(WORKLOAD)
    assert without.id == points[0].id


def test_a_point_without_groups_is_stored_without_that_key() -> None:
    point = Point(4, 2, {"items": 10}, {"distributed.scheduler.work-stealing": False})
    assert "groups" not in point.to_mapping()


def test_default_values_do_not_change_the_id_of_a_sweep_or_point() -> None:
    local = {"kind": "local", "start_timeout_s": LocalSpec().start_timeout_s}
    assert sweep(cluster=local, repeats=1, points=[], seed=0).id == sweep(cluster="local").id
    assert len({each.id for each in (sweep(), sweep(cluster="local"), sweep(seed=1), sweep(params={"mode": "x"}))}) == 4
    assert Point(1, 1, dask_config={}, environment="present").id == digest({"workers": 1})


def test_fault_is_an_axis_and_none_means_the_point_without_a_fault() -> None:
    asked = sweep(axes={"workers": [1], "fault": ["none", "kill-worker@2.5"]}, cluster="local")
    whole, broken = asked.expand(WORKLOAD)
    assert whole == sweep(axes={"workers": [1]}).expand(WORKLOAD)[0]
    assert broken.values["fault"] == "kill-worker@2.5"
    assert Point.from_mapping(broken.to_mapping()) == broken
    assert broken.id != whole.id


@pytest.mark.parametrize("name", OWN_AXES)
def test_a_built_in_axis_is_a_field_of_point_and_named_in_the_help(name: str) -> None:
    assert name in Point.__dataclass_fields__
    [axes] = (each for each in declared(Sweep) if each.name == "axes")
    assert name in axes.about.help


def test_a_point_can_be_rebuilt_from_its_values() -> None:
    on_local = Sweep("sleep", cluster=LocalSpec(), axes={"workers": (1,)})
    values = {"workers": 2, "threads_per_worker": 3, "environment": "a = x==1", "fault": "kill-worker@2"}
    point = on_local.point({**values, "items": 5}, WORKLOAD)
    assert on_local.point(point.values, WORKLOAD) == point
    assert {name: point.values[name] for name in values} == values
