"""Memory samples of processes, merged with what the scheduler knew of their workers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from distributed import Client, LocalCluster
from support.waiting import wait_for

from scalescope.capture import memory, process_samples
from scalescope.capture.shipping import Shipment
from scalescope.model.records import Columns, empty

Rows = Callable[[Columns], list[dict[str, Any]]]


def sample(process: str, times: list[float], sizes: list[int], interval_s: float = 0.5) -> dict[str, Any]:
    return {
        "process": process,
        "first_worker": None,
        "interval_s": interval_s,
        "samples": [(when, size, 0.5) for when, size in zip(times, sizes, strict=True)],
        "cores": 2,
        "threads": 9,
        "pool": 2,
        "collections": [(0.5, 0.75), (1.5, 2.25)],
        "gpu": {"absent": "DISABLED_PYNVML_NOT_AVAILABLE"},
        "inside": None,
    }


def test_memory_samples_include_the_last_known_managed_memory(rows: Rows) -> None:
    samples = {"scheduler": sample("a", [1.0], [10]), "w": sample("b", [1.0, 2.0, 3.0], [20, 30, 40])}
    managed = [(1.5, "w", 7, 0), (1.6, "other", 1, 1), (2.5, "w", 8, 9)]
    assert [tuple(row.values()) for row in rows(memory._columns(samples, managed))] == [
        ("scheduler", 1.0, 10, 0, 0, 0.5, 0.25),
        ("w", 1.0, 20, 0, 0, 0.5, 0.25),
        ("w", 2.0, 30, 7, 0, 0.5, 0.5),
        ("w", 3.0, 40, 8, 9, 0.5, 0.25),
    ]


async def slow_metric(worker: Any) -> int:
    await asyncio.sleep(0.3)  # as the metrics of a GPU, in a thread
    return 1


def test_overlapping_heartbeats_lose_no_worker_and_no_metrics() -> None:
    def executed(dask_scheduler: Any) -> float:
        spans = dask_scheduler.extensions["spans"].spans.values()
        metrics = [items for span in spans for items in span._cumulative_worker_metrics.items()]
        return sum(value for (*_, activity, unit), value in metrics if (activity, unit) == ("thread-noncpu", "seconds"))

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", metrics={"gpu": slow_metric}
        ) as cluster,
        Client(cluster) as client,
    ):
        for _ in range(8):
            client.submit(time.sleep, 0.05, pure=False).result(timeout=60)
            client.run(Shipment(process_samples, "beat"), wait=False)
        wait_for(lambda: client.run_on_scheduler(executed) > 0.3, "the metrics are lost", 10)
        assert len(client.run(process_samples.pool_threads)) == 1


def test_a_process_that_workers_share_is_counted_once(rows: Rows) -> None:
    columns = memory._columns({"v": sample("a", [1.0], [10]), "w": sample("a", [1.1], [11])}, [])
    assert [row["worker"] for row in rows(columns)] == ["v"]


def test_workers_in_the_schedulers_process_are_mentioned_in_a_note(client: Client) -> None:
    since = time.time()
    time.sleep(0.6)  # the monitor looks twice a second
    gathered = memory.gather(client, since)
    assert gathered.warnings == []
    [note] = gathered.notes
    assert note.startswith("2 workers")
    assert set(gathered.columns["worker"]) == {"scheduler"}
    assert min(gathered.columns["time"]) >= since


@pytest.fixture
def asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Makes scheduler and workers answer with these samples; returns the workers that were asked."""

    def answer(scheduler: Any, workers: dict[str, Any]) -> list[Any]:
        found: list[Any] = []

        async def on_scheduler(function: Any, since: float) -> dict[str, Any]:
            return scheduler | {"workers": len(workers), "first_worker": "w0"}

        async def on_workers(function: Any, *since: Any, **options: Any) -> dict[str, Any]:
            found.append(options.get("workers"))
            return workers

        monkeypatch.setattr(client, "_run_on_scheduler", on_scheduler)
        monkeypatch.setattr(client, "_run", on_workers)
        return found

    return answer


def test_where_memory_monitoring_is_off_only_one_worker_is_asked_for_samples(client: Client, asked: Any) -> None:
    off = sample("a", [1.0], [10], interval_s=3600.0)
    found = asked(off, dict.fromkeys(map(str, range(memory.FEW + 1)), off))
    gathered = memory.gather(client, 0.0)
    assert found == [["w0"]]
    assert len(gathered.notes) == 1
    assert gathered.warnings == []
    assert gathered.columns == empty("memory")


def test_workers_that_do_not_answer_are_named(client: Client, asked: Any) -> None:
    asked(sample("a", [], []), {"w0": sample("b", [1.0], [5]), "w1": OSError("gone")})
    gathered = memory.gather(client, 0.0)
    [warning] = gathered.warnings
    assert "1 worker " in warning
    assert warning.endswith(" w1")
    assert list(gathered.columns["worker"]) == ["w0"]


def test_memory_samples_that_take_too_long_are_given_up_with_a_warning(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(function: Any, since: float) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(client, "_run_on_scheduler", never)
    gathered = memory.gather(client, 0.0, timeout_s=0.05)
    assert gathered.columns == empty("memory")
    [warning] = gathered.warnings
    assert warning.endswith(" 0.05 s")


# ------------------------------------------------------------------ GPUs


def test_gpus_of_some_workers_are_listed_with_reasons_for_those_without() -> None:
    columns = {"time": (1.0, 2.0), "utilisation": (0.5, 0.7), "memory": (7, 8)}
    columns |= {"prefix": ("inc", ""), "doing": ("", ""), "cpu": (1.0, 0.0)}
    told = {
        "a": {"facts": {"name": "H200", "uuid": "GPU-1"}, "columns": columns},
        "b": {"absent": "DISABLED_PYNVML_NOT_AVAILABLE"},
        "c": {"absent": "HIDDEN"},
    }
    found = memory.gpus(told)
    assert found["workers"] == {"a": {"name": "H200", "uuid": "GPU-1"}}
    assert found["absent"] == [
        "1 of 3 workers: pynvml is not installed with the workers (`pip install nvidia-ml-py`)",
        "1 of 3 workers: CUDA_VISIBLE_DEVICES of the workers names no GPU",
    ]
    samples = memory._gpu_samples(told)
    assert (samples["worker"], samples["gpu"]) == (["a", "a"], ["GPU-1", "GPU-1"])
    assert (list(samples["time"]), samples["prefix"], list(samples["memory"])) == ([1.0, 2.0], ["inc", ""], [7, 8])


def test_without_a_gpu_its_absence_is_explained(client: Client) -> None:
    found = memory.gather(client, 0.0).gpus
    assert found["workers"] == {}
    [why] = found["absent"]
    assert why


def test_the_threads_of_a_numerical_library_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.ones(1) @ np.ones(1) == 1  # BLAS is there
    with threadpoolctl.threadpool_limits(3):
        assert process_samples.pool_threads() == 3
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert process_samples.pool_threads() == 5
    monkeypatch.delenv("MKL_NUM_THREADS")
    assert process_samples.pool_threads() == 0
