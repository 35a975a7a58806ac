"""Samples the GPU of a worker with NVML, and at the same instants the activity of the threads that run its tasks.

NVML returns the share of its last sampling period (0.2 s on an H100, a second on others) in which a kernel of any
process ran on the card, not how much of the card the kernel used. A sampled thread is in Python code, or in a call of C
code whose name is on its line; samples see a thread only where it can release the interpreter's lock. This source text
is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import dis
import os
import re
import sys
import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

from dask.utils import key_split
from distributed.diagnostics import nvml
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.sizeof import safe_sizeof

from scalescope.capture.deferred_collection import collection_deferred

NAME = "scalescope-gpu"
INTERVAL_S = 0.1
MOST = 3000  # most samples that a worker holds; then every second one is dropped and the interval is doubled
COLUMNS = ("time", "utilisation", "memory", "prefix", "doing", "cpu")
PROCESSES_EVERY = 10  # samples between two looks at the processes on the card
THROTTLED = 0x08 | 0x20 | 0x40 | 0x80  # hardware slowdown, heat, power brake; not the normal power limit
THREAD_CLOCK = 4 | 2  # bits of a Linux clock id: CPU time of one thread (CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED)
DEPTH = 60  # most frames of a thread that are examined, from the innermost

COPYING, LOADING = "copying", "loading"
# Names of methods that copy to or from a GPU or wait for its results (the second pattern: only in CuPy's own code), and
# names of methods that read or decode data.
_COPIES = re.compile("to|cuda|cpu|item|numpy|tolist|asnumpy|pin_memory|(_cuda_)?synchronize|copy_to_host|to_device")
_CUPY_COPIES = re.compile("get|set|array|asarray")
_READS = re.compile(
    "open|(read|write)(into|_bytes|_text|lines)?|loads?|im(read|decode)|decompress|savez|fromfile|(to|from|read)_parquet"
)
_LOADERS = re.compile(
    "PIL|cv2|imageio|tifffile|h5py|zarr|numcodecs|netCDF4|fsspec|s3fs|gcsfs|adlfs|pyarrow|fastparquet|json|pickle|gzip|"
    "bz2|lzma|zipfile|tarfile|csv|soundfile|librosa|torchaudio|webdataset|safetensors|pathlib|shutil"
)
_LOADING_MODULES = (
    *("torch.utils.data", "torch.serialization", "torchvision.io", "torchvision.datasets", "pandas.io", "skimage.io"),
    *("numpy.lib.npyio", "numpy.lib._npyio", "numpy.lib.format", "numpy.lib._format", "apache_beam.io"),
)


class GpuSampler(WorkerPlugin):  # type: ignore[misc]
    """Samples while the worker lives; `taken` returns the samples."""

    name = NAME

    def setup(self, worker: Any) -> None:
        self.worker, self.interval = worker, INTERVAL_S
        self.samples: list[tuple[Any, ...]] = []
        self.absent, self.facts, self.processes = why_absent(), {}, 0
        self.cpu: dict[int, tuple[float, float]] = {}
        self.moved = 0
        self.over = threading.Event()
        if self.absent:
            return
        self.nvml, self.card = nvml.pynvml, nvml._pynvml_handles()
        try:
            self.nvml.nvmlDeviceGetUtilizationRates(self.card)
            self.facts = {
                "name": _text(self.nvml.nvmlDeviceGetName(self.card)),
                "uuid": _text(self.nvml.nvmlDeviceGetUUID(self.card)),
                "memory_total": int(self.nvml.nvmlDeviceGetMemoryInfo(self.card).total),
            }
        except self.nvml.NVMLError as error:  # a part of a card (MIG) has no utilisation
            self.absent = f"NVML does not report the utilisation of the GPU: {error}"
            return
        for callbacks in _of_moves(worker):
            callbacks.append(self.move)
        threading.Thread(target=self.run, name=NAME, daemon=True).start()

    def teardown(self, worker: Any) -> None:
        self.over.set()
        for callbacks in _of_moves(worker):
            if self.move in callbacks:
                callbacks.remove(self.move)

    def move(self, key: Any, value: Any) -> None:
        self.moved += safe_sizeof(value)

    def run(self) -> None:
        begun = 0
        while not self.over.wait(self.interval):
            with suppress(self.nvml.NVMLError):  # a card that fell off the bus has no more samples
                self.samples.append(self.sample())
                begun += 1
                if begun % PROCESSES_EVERY == 1:
                    self.processes = max(self.processes, len(self.nvml.nvmlDeviceGetComputeRunningProcesses(self.card)))
            if len(self.samples) >= MOST:
                self.samples = self.samples[::2]
                self.interval *= 2

    def sample(self) -> tuple[Any, ...]:
        busy = self.nvml.nvmlDeviceGetUtilizationRates(self.card).gpu / 100
        used = int(self.nvml.nvmlDeviceGetMemoryInfo(self.card).used)
        throttled = False
        with suppress(self.nvml.NVMLError):  # some virtual cards do not report this
            throttled = bool(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.card) & THROTTLED)
        with self.worker.active_threads_lock:
            running = dict(self.worker.active_threads)
        native = {thread.ident: thread.native_id for thread in threading.enumerate()} if running else {}
        doing = _doing(running)
        threads = [(key_split(key), doing.get(each, ""), self.cores(native.get(each))) for each, key in running.items()]
        return time.time(), busy, used, throttled, threads

    def cores(self, thread: int | None) -> float:
        # share of the time since the last sample for which a thread was on a core; 1 if unknown
        if thread is None:
            return 1.0
        try:
            spent = time.clock_gettime((~thread << 3) | THREAD_CLOCK)
        except (AttributeError, OSError):  # Windows; a thread that has ended
            return 1.0
        now = time.monotonic()
        before, since = self.cpu.get(thread, (spent, 0.0))
        self.cpu[thread] = spent, now
        return min((spent - before) / (now - since), 1.0) if since and now - since < 3 * self.interval else 1.0

    def taken(self, since: float, delay: float) -> dict[str, Any]:
        """Facts and samples since a time on this host's clock, or `absent`: why there are none. Drops all samples.

        The times of samples are on the scheduler's clock, which is `delay` seconds ahead.
        """
        samples, self.samples, self.interval = self.samples, [], INTERVAL_S
        moved, self.moved = self.moved, 0
        if self.absent:
            return {"absent": self.absent}
        samples = [sample for sample in samples if sample[0] >= since]
        if not samples:
            return {"absent": "NO_SAMPLES"}
        rows = []
        for when, busy, used, _, threads in samples:
            rows += [(when + delay, busy, used, *thread) for thread in threads or [("", "", 0.0)]]
        throttled = sum(sample[3] for sample in samples) / len(samples)
        # bytes of results that dask-cuda moved between GPU and host, both ways
        facts = {**self.facts, "processes": self.processes, "throttled": throttled, "moved": moved}
        columns = dict(zip(COLUMNS, zip(*rows)))  # noqa: B905  # Python 3.9
        return {"facts": facts, "columns": columns}


def why_absent(dask_worker: Any = None) -> str:
    """Why the worker sees no GPU: a state of `distributed.diagnostics.nvml`, or `HIDDEN`; empty if it sees one."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1", "NoDevFiles"):
        return "HIDDEN"
    if nvml.device_get_count() == 0:
        return str(getattr(getattr(nvml, "NVML_STATE", None), "name", "UNINITIALIZED"))
    return ""


def _of_moves(worker: Any) -> list[Any]:
    # dask-cuda holds results in a zict buffer; functions in its callback lists are called for each result that it moves
    buffer = getattr(getattr(worker, "data", None), "device_buffer", None)
    names = ("fast_to_slow_callbacks", "slow_to_fast_callbacks")
    return [getattr(buffer, name) for name in names if hasattr(buffer, name)]


def _doing(running: Any) -> dict[int, str]:
    with collection_deferred():
        frames = sys._current_frames()
        found = {each: _of_frame(frames[each]) for each in running if each in frames}
        del frames
        return found


def _of_frame(frame: Any) -> str:
    module = str(frame.f_globals.get("__name__", ""))
    found = _of_line(frame.f_code, frame.f_lasti, module.startswith("cupy"))
    for _ in range(DEPTH):
        if found or frame is None or module == "distributed.worker":
            break
        if _LOADERS.fullmatch(module.partition(".")[0]) or module.startswith(_LOADING_MODULES):
            found = LOADING
        frame = frame.f_back
        module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return found


@lru_cache(maxsize=1000)
def _of_line(code: Any, instruction: int, in_cupy: bool) -> str:
    # judge by the attributes that the line has loaded so far: the function that is being called is among them
    begin = max((offset for offset, _ in dis.findlinestarts(code) if offset <= instruction), default=0)
    names = [
        str(each.argval)
        for each in dis.get_instructions(code)
        if begin <= each.offset <= instruction
        and (each.opname in ("LOAD_ATTR", "LOAD_METHOD") or each.argval == "open")
    ]
    if any(_COPIES.fullmatch(name) or (in_cupy and _CUPY_COPIES.fullmatch(name)) for name in names):
        return COPYING
    return LOADING if any(map(_READS.fullmatch, names)) else ""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
