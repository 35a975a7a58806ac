"""GPUs: healthy ones first, then starved, contended, unused, missing, full and slow ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.findings import observed
from support.small_cluster import Cluster, Task, find

from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Severity
from scalescope.model.records import from_rows

STEP_S = 0.5  # seconds between samples; so long that the delay of NVML does not matter


@dataclass
class Use:
    """Use of the card by a task of one prefix."""

    busy: float  # utilisation while it runs
    doing: str = ""  # what the thread does besides, such as `copying`; empty if it runs Python
    cpu: float = 1.0  # cores that the thread uses


def seen(found: Observation, uses: dict[str, Use], *, without: tuple[int, ...] = (), cards: int = 0, **facts: dict):
    """The trial with samples of its workers' cards; `cards` of them are shared by all workers in turn."""
    attempts, rows = found.measured, []
    addresses = [address for i, address in enumerate(attempts.addresses) if i not in without]
    for i, worker in enumerate(addresses):
        own = np.flatnonzero(attempts.worker == attempts.addresses.index(worker))
        for when in np.arange(STEP_S / 2, attempts.makespan, STEP_S):
            running = own[(attempts.start[own] <= when) & (attempts.stop[own] > when)]
            used = [uses[attempts.prefix[each]] for each in running]
            sample = {
                "worker": worker,
                "gpu": f"GPU-{i % cards if cards else i}",
                "time": when + attempts.epoch,
                "utilisation": max((use.busy for use in used), default=0.0),
                "memory": 10**9,
            }
            tasks = zip(running, used, strict=True)
            rows += [sample | {"prefix": attempts.prefix[j], "doing": use.doing, "cpu": use.cpu} for j, use in tasks]
            if not used:
                rows.append(sample)
    told = {
        address: {"name": "H100", "memory_total": 80 * 10**9, "processes": 1, "throttled": 0.0, "moved": 0}
        for address in addresses
    }
    for address, more in facts.items():
        told[attempts.addresses[int(address[1:])]] |= more
    metrics = replace(found.trial.metrics, elapsed_s=found.trial.metrics.makespan_s)
    capture = {"gpus": {"workers": told, "absent": []}}
    trial = replace(found.trial, metrics=metrics, facts={**found.trial.facts, "capture": capture})
    return observed(trial, found.tables | {"gpu": from_rows("gpu", rows)})


def codes(found):
    return [code for code in found if code.startswith("gpu-")]


@pytest.mark.parametrize(
    ("busy", "doing", "cards"),
    [
        *[(busy, doing, 0) for busy in (0.85, 1.0) for doing in ("", "copying", "loading")],
        (0.0, "", 0),  # a host with a GPU that the workload never uses
        (0.85, "copying", 1),  # shared, and not always busy
    ],
)
def test_a_gpu_that_is_kept_busy_or_never_used_is_healthy(busy, doing, cards):
    assert not find(seen(Cluster(4).run([Task(2.0)] * 40), {"work": Use(busy, doing)}, cards=cards))


@pytest.mark.parametrize(
    ("use", "word"),
    [
        (Use(0.3, "loading"), "DataLoader"),
        (Use(0.3, "copying"), "non_blocking"),
        (Use(0.3, "", 1.0), "batches"),
        (Use(0.3, "", 0.0), "at a time"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_gpu_that_waits_for_data_is_found_as_starved(use, word, threads, golden):
    found = find(seen(Cluster(4, threads).run([Task(2.0)] * 40), {"work": use}))
    assert codes(found) == ["gpu-starved"]
    starved = golden(found["gpu-starved"])
    assert starved.lost_s == pytest.approx(0.7 * 80)
    if word in ("DataLoader", "at a time"):
        assert starved.gain.change == {"threads_per_worker": 3 * threads}


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_workers_that_wait_for_a_shared_gpu_are_found_as_contended(workers):
    uses = {"work": Use(1.0, "copying")}
    found = find(seen(Cluster(workers).run([Task(2.0)] * 40), uses, cards=1))
    assert codes(found) == ["gpu-contended"]
    assert found["gpu-contended"].lost_s == pytest.approx(80 * (1 - 1 / workers))
    assert found["gpu-contended"].gain is None
    assert not find(seen(Cluster(workers).run([Task(2.0)] * 40), uses))  # each has its own


def test_tasks_that_do_not_use_the_gpu_of_their_worker_are_found_as_gpu_unused():
    tasks = [*[Task(2.0, "prepare")] * 20, *[Task(2.0)] * 20]
    uses = {"prepare": Use(0.0), "work": Use(0.95)}
    found = find(seen(Cluster(4).run(tasks), uses))
    assert codes(found) == ["gpu-unused"]
    assert found["gpu-unused"].lost_s == pytest.approx(40)
    alone = seen(Cluster(4).run([Task(2.0)] * 40), {"work": Use(0.0)})
    asked = replace(alone.trial, facts={**alone.trial.facts, "cluster": {"gpus": 1}})
    assert codes(find(observed(asked, alone.tables))) == ["gpu-unused"]


def test_tasks_that_need_a_gpu_on_workers_without_one_are_found_as_gpu_missing(golden):
    trial = Cluster(4, slower={3: 5.0}).run([Task(2.0)] * 60)
    found = find(seen(trial, {"work": Use(0.95)}, without=(3,)))
    assert list(found) == ["gpu-missing"]
    golden(found["gpu-missing"])


def error(text):
    return (1_001.0, "task-erred", {"key": "work-1", "worker": "tcp://10.0.0.0:4000", "exception": text})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RuntimeError: No CUDA GPUs are available", "gpu-missing"),
        ("AssertionError: Torch not compiled with CUDA enabled", "gpu-missing"),
        ("CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected", "gpu-missing"),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 58.59 GiB", "gpu-memory-full"),
        ("MemoryError: std::bad_alloc: out_of_memory: CUDA error", "gpu-memory-full"),
        ("ValueError: a column is missing", ""),
    ],
)
def test_errors_of_cuda_are_found_as_gpu_missing_or_gpu_memory_full(text, code):
    found = find(Cluster(4, events=[error(text)]).run([Task(2.0)] * 40))
    assert list(found) == ([code] if code else [])


@pytest.mark.parametrize(
    ("facts", "code"),
    [({"throttled": 0.6}, "gpu-slow"), ({"processes": 3}, "gpu-slow"), ({"throttled": 0.1}, "slow-worker")],
)
def test_a_throttled_or_shared_gpu_is_found_as_gpu_slow(facts, code):
    trial = Cluster(8, slower={2: 3.0}).run([Task(2.0)] * 80)
    assert next(iter(find(seen(trial, {"work": Use(0.95)}, _2=facts)))) == code


@pytest.mark.parametrize(("read_s", "severity"), [(1.0, Severity.HIGH), (0.01, Severity.INFO)])
def test_results_that_dask_cuda_moves_to_the_host_are_found_as_gpu_memory_full(read_s, severity, golden):
    """distributed counts the time as reading from disk and writing to it."""
    trial = Cluster(1, gap_s=1.0).run([Task(2.0)] * 20)
    trial.tables["tasks"]["disk_read"] = [read_s] * 20
    found = find(seen(trial, {"work": Use(0.95)}, _0={"moved": 5 * 10**9}))
    assert found["gpu-memory-full"].severity is severity
    assert found["gpu-memory-full"].lost_s == pytest.approx(20 * read_s)
    assert "memory-spill" not in found
    assert "gpu-memory-full" not in find(seen(trial, {"work": Use(0.95)}, _0={"moved": 10**6}))
    golden(found["gpu-memory-full"])
