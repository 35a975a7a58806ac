"""Every workload on a small cluster; details of Beam are in test_beam."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from scalescope import workloads
from scalescope.errors import UsageError, WrongAnswer
from scalescope.model.workload import Workload
from scalescope.workloads import dataframes, futures
from scalescope.workloads.futures import bag_map, futures_map, tree_reduce

if TYPE_CHECKING:
    from .conftest import Place

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("futures-map", {"items": 0}, {"items": 0, "stages": 1}),
    ("futures-map", {"items": 7, "seconds": 0.001, "stages": 3}, {"items": 7, "stages": 3}),
    ("bag-map", {"items": 0}, {"items": 0, "stages": 1, "partitions": 1}),
    ("bag-map", {"items": 12, "seconds": 0.001, "stages": 2}, {"items": 12, "stages": 2, "partitions": 12}),
    ("bag-map", {"items": 12, "seconds": 0, "npartitions": 3}, {"items": 12, "stages": 1, "partitions": 3}),
    ("bag-map", {"items": 12, "seconds": 0, "partition_size": 5}, {"items": 12, "stages": 1, "partitions": 3}),
    ("beam-pardo", {"items": 6, "seconds": 0.001, "npartitions": 3}, {"items": 6, "stages": 3}),
    ("beam-pardo", {"items": 0, "seconds": 0, "stages": 1}, {"items": 0, "stages": 1}),
    ("beam-files", {"items": 5, "kib": 1, "size": 16, "partition_size": 2}, {"files": 5, "devices": {"cpu": 5}}),
    ("beam-files", {"items": 0}, {"files": 0, "devices": {}}),
    ("array-matmul", {"items": 1, "chunk": 1}, {"rows": 1}),
    ("array-matmul", {"items": 3, "chunk": 20}, {"rows": 60}),
    ("dataframe-shuffle", {"items": 1, "rows": 1}, {"rows": 1, "partitions": 1}),
    ("dataframe-shuffle", {"items": 4, "rows": 50, "groups": 9}, {"rows": 200, "partitions": 4}),
    ("dataframe-shuffle", {"items": 4, "rows": 50, "method": "tasks"}, {"rows": 200, "partitions": 4}),
    ("gpu-array", {"items": 2, "chunk": 4}, {"rows": 8, "devices": {"cpu": 4}}),
    ("gpu-train", {"items": 3, "rows": 16, "width": 8, "decode": 1}, {"batches": 3, "devices": {"cpu": 3}}),
    ("tree-reduce", {"items": 1, "seconds": 0}, {"items": 1, "depth": 0}),
    ("tree-reduce", {"items": 20, "seconds": 0.001, "reduce_seconds": 0.001}, {"items": 20, "depth": 2}),
    ("tree-reduce", {"items": 9, "seconds": 0, "split_every": 2, "reduce_seconds": 0}, {"items": 9, "depth": 4}),
]
IDS = [f"{name}-{index}" for index, (name, _, _) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "params", "told"), CASES, ids=IDS)
def test_a_workload_runs_on_an_in_process_cluster(
    inproc: Place, name: str, params: dict[str, Any], told: dict[str, Any]
) -> None:
    workload = workloads.load(name)
    result = workload.run(inproc.client, **workload.bind(params))
    assert {key: result[key] for key in told} == told


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [case for case in CASES if case[1]["items"] > 4],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workload_runs_on_worker_processes(
    processes: Place, name: str, params: dict[str, Any], told: dict[str, Any]
) -> None:
    workload = workloads.load(name)
    result = workload.run(processes.client, **workload.bind(params))
    assert {key: result[key] for key in told} == told


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("futures-map", {"items": 10, "seconds": 0}),
        ("bag-map", {"items": 10, "seconds": 0}),
        ("beam-pardo", {"items": 10, "seconds": 0, "npartitions": 5}),
        ("beam-files", {"items": 4, "kib": 1, "size": 4, "npartitions": 4}),
        ("array-matmul", {"items": 2, "chunk": 4}),
        ("dataframe-shuffle", {"items": 3, "rows": 10}),
        ("tree-reduce", {"items": 10, "seconds": 0, "reduce_seconds": 0}),
    ],
)
def test_a_second_run_shares_no_task_with_the_first(inproc: Place, name: str, params: dict[str, Any]) -> None:
    """This holds even while the scheduler still has results of the first run."""
    workload = workloads.load(name)
    keys = []
    for _ in range(2):
        with inproc.counting() as counting:
            workload.run(inproc.client, **workload.bind(params))
        keys.append(counting.keys)
    assert keys[0]
    shared = {key for key in keys[0] & keys[1] if "from_sequence" not in str(key)}
    assert not shared


@pytest.mark.parametrize(("items", "partitions"), [(100, 100), (101, 51), (400, 200), (401, 134)])
def test_the_default_number_of_bag_partitions_is_a_sawtooth_over_items(
    inproc: Place, items: int, partitions: int
) -> None:
    """dask/dask#10291 and its fix in 2023.9."""
    with inproc.counting() as counting:
        result = bag_map.run(inproc.client, items=items, seconds=0)
    assert result["partitions"] == partitions
    assert counting.tasks["pass_on"] == partitions


def test_bag_map_makes_one_partition_per_item_if_npartitions_is_items(inproc: Place) -> None:
    assert bag_map.run(inproc.client, items=150, seconds=0, npartitions="items")["partitions"] == 150


def test_futures_map_and_tree_reduce_have_the_declared_tasks_per_stage(inproc: Place) -> None:
    with inproc.counting() as counting:
        futures_map.run(inproc.client, items=5, seconds=0, stages=3)
    assert counting.tasks == {"stage1": 5, "stage2": 5, "stage3": 5}
    with inproc.counting() as counting:
        tree_reduce.run(inproc.client, items=20, seconds=0, split_every=3, reduce_seconds=0)
    assert counting.tasks == {"leaf": 20, "reduce1": 7, "reduce2": 3, "reduce3": 1}


# ------------------------------------------------------------------------------------------- what goes wrong


_summarise = dataframes.summarise


@pytest.mark.parametrize(
    ("workload", "module", "function", "broken", "params"),
    [
        (futures_map, futures, "pass_on", lambda value, seconds: value, {"items": 3, "seconds": 0}),
        (bag_map, futures, "pass_on", lambda value, seconds, token: value, {"items": 3, "seconds": 0}),
        (tree_reduce, futures, "reduce", lambda values, seconds: sum(values[1:]), {"items": 9, "seconds": 0}),
        (
            *(dataframes.dataframe_shuffle, dataframes, "summarise"),
            *(lambda frame: _summarise(frame.iloc[1:]), {"items": 3, "rows": 10}),
        ),
    ],
)
def test_a_wrong_function_raises_wrong_answer_with_the_workload_name(
    inproc: Place,
    monkeypatch: pytest.MonkeyPatch,
    workload: Workload,
    module: Any,
    function: str,
    broken: Any,
    params: dict[str, Any],
) -> None:
    monkeypatch.setattr(module, function, broken)
    with pytest.raises(WrongAnswer):
        workload.run(inproc.client, **params)


def test_an_error_in_a_task_reaches_the_caller(inproc: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(value: int, seconds: float) -> int:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(futures, "pass_on", broken)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        futures_map.run(inproc.client, items=3, seconds=0)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("beam-pardo", "apache_beam", "beam"),
        ("beam-files", "numpy", "arrays"),
        ("array-matmul", "dask.array", "arrays"),
        ("dataframe-shuffle", "pyarrow", "arrays"),
    ],
)
def test_running_a_workload_without_its_package_raises_usage_error(
    inproc: Place, monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs {module.partition('.')[0].replace('_', '-')}.*(?s:.)*\[{extra}\]"):
        workloads.load(name).run(inproc.client)
