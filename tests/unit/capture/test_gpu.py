"""The sampler of a worker's GPU, on the stand-in for NVML."""

from __future__ import annotations

import gzip
import importlib.util
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import distributed.worker
import pytest
import zict
from distributed.diagnostics import nvml
from support.waiting import wait_for

from scalescope.capture import gpu
from scalescope.capture.shipping import Shipment

STAND_IN = Path(__file__).parents[2] / "stand_in" / "pynvml.py"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("stand_in_pynvml", STAND_IN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("NVML_CARD", str(tmp_path))
    monkeypatch.setattr(nvml, "pynvml", module)
    monkeypatch.setattr(nvml, "NVML_STATE", nvml.NVMLState.UNINITIALIZED)
    for told in ("DEFAULT_METRICS", "DEFAULT_STARTUP_INFORMATION"):
        monkeypatch.setattr(distributed.worker, told, {})  # later workers of this process have no card
    yield module
    for thread in threading.enumerate():  # before its card is taken away
        if thread.name == gpu.NAME:
            thread.join(5)


@pytest.fixture
def sampler(card: ModuleType) -> gpu.GpuSampler:
    made = gpu.GpuSampler()
    made.setup(SimpleNamespace(active_threads={threading.get_ident(): "inc-1"}, active_threads_lock=threading.Lock()))
    made.over.set()  # the tests sample themselves
    made.samples = []
    return made


def test_a_host_without_a_gpu_driver_has_no_gpu_samples(monkeypatch: pytest.MonkeyPatch, card: ModuleType) -> None:
    monkeypatch.delenv("NVML_CARD")
    made = gpu.GpuSampler()
    made.setup(SimpleNamespace())
    assert made.taken(0.0, 0.0) == {"absent": "DISABLED_LIBRARY_NOT_FOUND"}


def test_a_worker_from_which_the_gpu_is_hidden_has_no_gpu_samples(
    monkeypatch: pytest.MonkeyPatch, card: ModuleType
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = gpu.GpuSampler()
    made.setup(SimpleNamespace())
    assert made.taken(0.0, 0.0) == {"absent": "HIDDEN"}


def test_gpu_samples_use_the_schedulers_clock_and_are_returned_once(sampler: gpu.GpuSampler) -> None:
    before = time.time()
    sampler.samples = [(before - 5, 1.0, 1, False, []), sampler.sample(), (before + 1, 0.5, 7, True, [])]
    told = sampler.taken(before, 100.0)
    assert told["facts"] == {
        "name": "stand-in", "uuid": told["facts"]["uuid"], "memory_total": 80 * 10**9, "processes": 0, "throttled": 0.5,
        "moved": 0,
    }  # fmt: skip
    columns = {name: list(values) for name, values in told["columns"].items()}
    assert columns["time"][0] >= before + 100
    assert columns["prefix"] == ["inc", ""]
    assert columns["utilisation"] == [0.0, 0.5]
    assert sampler.taken(before, 0.0) == {"absent": "NO_SAMPLES"}


def test_a_long_trial_keeps_only_every_second_gpu_sample(
    sampler: gpu.GpuSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "MOST", 4)
    monkeypatch.setattr(gpu, "INTERVAL_S", 0.001)
    made = gpu.GpuSampler()
    made.setup(sampler.worker)
    time.sleep(0.1)
    made.teardown(None)
    assert 2 <= len(made.samples) <= 4
    assert made.interval > 0.001


@pytest.mark.parametrize(
    ("call", "doing"),
    [
        (lambda tensor: tensor.item(), "copying"),
        (lambda file: file.read(), "loading"),
        (lambda tensor: tensor.multiply(), ""),
    ],
)
def test_copying_and_loading_are_recognised_by_the_line_that_a_thread_runs(call: Any, doing: str) -> None:
    seen = []

    def look() -> None:
        seen.append(gpu._of_frame(sys._getframe(1)))

    call(SimpleNamespace(item=look, read=look, multiply=look))
    assert seen == [doing]


def test_decoding_inside_a_library_is_recognised_as_loading(sampler: gpu.GpuSampler) -> None:
    packed = gzip.compress(bytes(30_000_000), 1)
    over = threading.Event()

    def decode() -> None:
        while not over.is_set():
            gzip.decompress(packed)

    thread = threading.Thread(target=decode)
    thread.start()
    sampler.worker.active_threads = {thread.ident: "decode-1"}
    try:
        wait_for(lambda: {doing for _, doing, _ in sampler.sample()[4]} == {"loading"}, "it is never seen to decode")
    finally:
        over.set()
        thread.join()


def test_the_core_share_of_a_thread_that_has_ended_is_taken_as_one(sampler: gpu.GpuSampler) -> None:
    for thread in (None, 2**22 + 1):  # Linux has no thread of such a number
        assert sampler.cores(thread) == 1.0
        time.sleep(0.05)  # while this thread, whose clock has the number 0, is on no core
        assert sampler.cores(thread) == 1.0


def test_results_that_dask_cuda_moves_are_counted(card: ModuleType) -> None:
    buffer = zict.Buffer({}, {}, 10_000, weight=lambda _, value: len(value))
    worker = SimpleNamespace(
        active_threads={}, active_threads_lock=threading.Lock(), data=SimpleNamespace(device_buffer=buffer)
    )
    sampler = gpu.GpuSampler()
    sampler.setup(worker)
    sampler.over.set()
    buffer["a"], buffer["b"] = bytes(8_000), bytes(8_000)  # `a` is moved to the host
    assert len(buffer["a"]) == 8_000  # `a` comes back, and `b` is moved
    sampler.samples = [sampler.sample()]
    assert sampler.taken(0.0, 0.0)["facts"]["moved"] == pytest.approx(24_000, rel=0.05)
    sampler.teardown(worker)
    assert buffer.fast_to_slow_callbacks == buffer.slow_to_fast_callbacks == []


def test_the_gpu_sampler_runs_where_scalescope_is_not_installed() -> None:
    assert pickle.loads(pickle.dumps(Shipment(gpu, "GpuSampler", {}))).name == gpu.NAME
