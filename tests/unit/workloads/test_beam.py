from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
import pytest

from scalescope.errors import InvalidField, UsageError, WrongAnswer
from scalescope.workloads import _beam, _file_work, beam_files, beam_pardo

if TYPE_CHECKING:
    from .conftest import Place

pytest.importorskip("apache_beam")


def test_beam_puts_128_items_into_a_partition_by_default(inproc: Place) -> None:
    """Since Beam 2.63; before, 200 items were 404 tasks."""
    with inproc.counting() as counting:
        beam_pardo.beam_pardo.run(inproc.client, items=200, seconds=0)
    assert sum(counting.tasks.values()) == 5
    assert counting.tasks["apply_dofn_to_bundle"] == 2


@pytest.mark.parametrize(("items", "npartitions", "tasks"), [(200, 200, 401), (20, "items", 41)])
def test_beam_runs_one_bundle_per_item_if_npartitions_says_so(
    inproc: Place, items: int, npartitions: int | str, tasks: int
) -> None:
    with inproc.counting() as counting:
        beam_pardo.beam_pardo.run(inproc.client, items=items, seconds=0, npartitions=npartitions)
    assert sum(counting.tasks.values()) == tasks
    assert counting.tasks["apply_dofn_to_bundle"] == items


def test_partition_size_sets_the_items_of_a_beam_bundle(inproc: Place) -> None:
    with inproc.counting() as counting:
        beam_pardo.beam_pardo.run(inproc.client, items=10, seconds=0, partition_size=3)
    assert counting.tasks["apply_dofn_to_bundle"] == 4


def test_every_item_sleeps_once_a_stage(inproc: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`time.sleep` is looked up when it is called, so that a virtual clock can replace it."""
    slept: list[float] = []
    monkeypatch.setattr("scalescope.workloads._beam_dofns.time.sleep", slept.append)
    beam_pardo.beam_pardo.run(inproc.client, items=30, seconds=12.5, stages=4, npartitions=10)
    assert slept.count(12.5) == 120


def test_the_beam_graph_is_the_same_in_process_and_over_a_network(inproc: Place, processes: Place) -> None:
    tasks = []
    for place in (inproc, processes):
        with place.counting() as counting:
            beam_pardo.beam_pardo.run(place.client, items=9, seconds=0, npartitions=3)
        tasks.append(counting.tasks)
    assert tasks[0] == tasks[1]


# ------------------------------------------------------------------------------------------- Beam's client


def _open_clients() -> set[str]:
    return {client.id for client in distributed.Client._instances if client.status != "closed"}


@pytest.mark.parametrize("current", [False, True])
def test_a_beam_run_leaves_the_open_clients_unchanged(inproc: Place, current: bool) -> None:
    before = _open_clients()
    with distributed.Client(inproc.cluster) as ours, ours.as_current() if current else nullcontext():
        beam_pardo.beam_pardo.run(inproc.client, items=2, seconds=0)
        assert distributed.default_client() is ours
        assert _open_clients() == before | {ours.id}
    assert set(inproc.cluster.scheduler.clients) >= {inproc.client.id}
    assert not [name for name in inproc.cluster.scheduler.clients if _beam.CLIENT_NAME in name]


def test_a_beam_run_with_a_failing_task_leaves_the_open_clients_unchanged(
    inproc: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    dofns = importlib.import_module("scalescope.workloads._beam_dofns")

    def process(self: Any, element: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(dofns.Sleep, "process", process)
    before = _open_clients()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        beam_pardo.beam_pardo.run(inproc.client, items=2, seconds=0)
    assert _open_clients() == before


def test_a_failing_beam_runner_leaves_the_open_clients_unchanged(
    inproc: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = importlib.import_module("apache_beam.runners.dask.dask_runner")

    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(runner.DaskRunner, "to_dask_bag_visitor", fail)
    before = _open_clients()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        beam_pardo.beam_pardo.run(inproc.client, items=2, seconds=0)
    assert _open_clients() == before


# ------------------------------------------------------------------------------------------- what goes wrong


def test_results_are_wrong_in_process_if_beam_shares_its_receivers(
    inproc: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for `own_receivers`; this test fails once Beam has fixed it."""
    monkeypatch.setattr(_beam, "own_receivers", lambda address: nullcontext())
    with pytest.raises(WrongAnswer, match="results for 40 items"):
        beam_pardo.beam_pardo.run(inproc.client, items=40, seconds=0, npartitions=20)


def test_functions_of_beam_are_restored_after_a_run(inproc: Place) -> None:
    evaluator = importlib.import_module("apache_beam.runners.dask.transform_evaluator")
    before = evaluator.apply_dofn_to_bundle
    beam_pardo.beam_pardo.run(inproc.client, items=2, seconds=0)
    assert evaluator.apply_dofn_to_bundle is before


@pytest.mark.parametrize("option", ["npartitions", "partition_size"])
def test_an_option_unknown_to_an_old_beam_raises_usage_error(
    inproc: Place, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    runner = importlib.import_module("apache_beam.runners.dask.dask_runner")

    class Options(runner.PipelineOptions):  # type: ignore[misc, name-defined]
        """Options of Beam before 2.63."""

    monkeypatch.setattr(runner, "DaskOptions", Options)
    with pytest.raises(UsageError, match=rf"Apache Beam 2\.\d+\.\d+ has no option --dask_{option}"):
        beam_pardo.beam_pardo.run(inproc.client, items=2, seconds=0, **{option: 1})


def test_npartitions_and_partition_size_together_are_refused(inproc: Place) -> None:
    with pytest.raises(InvalidField, match=r"params\.partition_size"):
        beam_pardo.beam_pardo.run(inproc.client, items=2, npartitions=1, partition_size=1)


def test_an_item_that_skips_a_stage_raises_wrong_answer(inproc: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    dofns = importlib.import_module("scalescope.workloads._beam_dofns")

    def process(self: Any, element: tuple[int, int]) -> Any:
        yield element[0], element[1] + (element[0] != 3)

    monkeypatch.setattr(dofns.Sleep, "process", process)
    with pytest.raises(WrongAnswer):
        beam_pardo.beam_pardo.run(inproc.client, items=5, seconds=0)


# ------------------------------------------------------------------------------------------- files


def test_beam_files_removes_its_files_after_a_run(inproc: Place, tmp_path: Path) -> None:
    beam_files.beam_files.run(inproc.client, items=3, kib=1, size=8, directory=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_beam_files_removes_its_files_after_a_wrong_answer(
    inproc: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file_work, "square_and_sum", lambda factor, device: (1.0, "cpu"))
    with pytest.raises(WrongAnswer):
        beam_files.beam_files.run(inproc.client, items=3, kib=1, size=8, directory=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_beam_files_refuses_a_folder_that_does_not_exist(inproc: Place, tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match=r"params\.directory"):
        beam_files.beam_files.run(inproc.client, items=1, directory=str(tmp_path / "none"))


def test_a_worker_that_cannot_see_a_file_raises_usage_error() -> None:
    dofns = importlib.import_module("scalescope.workloads._beam_dofns")
    with pytest.raises(UsageError, match="not see the file") as caught:
        list(dofns.Read("token").process("/no/such/file.bin"))
    assert "shared file system" in caught.value.next_step


class _Tensor:
    def __init__(self, array: Any, device: str = "cpu") -> None:
        self.array, self.device = array, device

    def to(self, device: str) -> _Tensor:
        return _Tensor(self.array, device)

    def __matmul__(self, other: _Tensor) -> _Tensor:
        assert self.device == other.device == "cuda"
        return _Tensor(self.array @ other.array, self.device)

    def sum(self, dtype: Any) -> Any:
        return self.array.sum(dtype=dtype)


def _torch(*, gpu: bool) -> Any:
    return SimpleNamespace(
        __version__="2.0", cuda=SimpleNamespace(is_available=lambda: gpu), from_numpy=_Tensor, float64=np.float64
    )


def test_beam_files_computes_on_a_gpu_if_torch_sees_one(inproc: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", _torch(gpu=True))
    for device in ("auto", "cuda"):
        told = beam_files.beam_files.run(inproc.client, items=2, kib=1, size=8, device=device)
        assert told == {"files": 2, "devices": {"cuda": 2}}
    assert beam_files.beam_files.run(inproc.client, items=2, kib=1, size=8, device="cpu")["devices"] == {"cpu": 2}


def test_beam_files_computes_on_the_cpu_if_torch_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = _file_work.matrix(b"\x00\xff", 4)
    monkeypatch.setitem(sys.modules, "torch", _torch(gpu=False))
    assert _file_work.square_and_sum(factor, "auto")[1] == "cpu"
    with pytest.raises(UsageError, match="none on this worker"):
        _file_work.square_and_sum(factor, "cuda")


def test_beam_files_computes_on_the_cpu_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = _file_work.matrix(b"\x00\xff", 4)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _file_work.square_and_sum(factor, "auto")[1] == "cpu"
    with pytest.raises(UsageError, match=r"\[torch\]"):
        _file_work.square_and_sum(factor, "cuda")
