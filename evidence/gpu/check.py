"""What Scalescope sees of a card, in at most seven minutes: `python -m evidence gpu [FOLDER [--stand-in] [PART...]]`.

Results go into the folder part by part: check.json, check.md and logs; a part that fails does not end the others.
Without a card, `--stand-in` tries the parts that need none. With Slurm's programs, and with distributed-ucxx and rmm,
parts with these run too. check.sh runs it on a machine without a network.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LIMIT_S = 400.0  # for all parts; a part that would have less than 15 s is left out
FOLDER = Path(__file__).resolve().parent
STAND_IN = "--stand-in" in sys.argv
GIVEN = [each for each in sys.argv[1:] if not each.startswith("--")]
OUT = Path(GIVEN[0] if GIVEN else "/tmp/gpu-check")
ONLY = GIVEN[1:]  # names of parts; all of them unless given
CODE = "from scalescope.cli.main import main; main()"
BEGAN = time.monotonic()
found: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), "parts": {}}

TRAIN = {"rows": 256, "width": 128} if STAND_IN else {"rows": 2048, "width": 4096}
FILES = {"items": 8, "size": 64} if STAND_IN else {"items": 96, "size": 4096}
# name: workload, axes, parameters, a finding that the verdict should hold, seconds at most
SWEEPS: dict[str, tuple[str, list[str], dict[str, Any], str, float]] = {
    "fed": ("gpu-train", ["workers=1"], TRAIN | {"items": 8, "steps": 400}, "healthy", 60),
    "starved": (
        *("gpu-train", ["workers=1", "threads_per_worker=1,4"]),
        *(TRAIN | {"items": 16, "decode": 60, "steps": 60}, "gpu-starved", 60),
    ),
    "two to eight share": (
        *("gpu-train", ["workers=2,4,8"], TRAIN | {"items": 16, "steps": 150}),
        *("gpu-contended", 80),
    ),
    "memory is full": (
        *("gpu-train", ["workers=2"], TRAIN | {"items": 4, "steps": 60, "hold_mib": 60_000}),
        *("gpu-memory-full", 40),
    ),
    "beam-files": ("beam-files", ["workers=2,4,8"], FILES | {"kib": 1024, "npartitions": "items"}, "gpu-starved", 80),
    "CuPy array": ("gpu-array", ["workers=2"], {"items": 6, "chunk": 128 if STAND_IN else 2048}, "", 60),
    "no GPU used": ("futures-map", ["workers=2"], {"items": 100, "seconds": 0.05}, "healthy", 40),
    "prepares on GPU workers": (
        *(f"{FOLDER / 'mixed.py'}:run", ["workers=2"], {"items": 8, "others": 40}),
        *("gpu-unused", 40),
    ),
}
DASK = (sys.executable, "-m", "dask")
WORKER = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard")
CUDA = ("cuda", "worker", *WORKER)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ["DASK_DISTRIBUTED__WORKER__PRELOAD"] = f"['{FOLDER / 'preload.py'}']"
    os.environ.setdefault("SCALESCOPE_STORE", "/tmp/gpu-check-store")
    parts = [("card", card), ("nvml", nvml), ("known duty", duty)]
    parts += [(name, lambda name=name: sweep(name, *SWEEPS[name])) for name in SWEEPS]
    parts.insert(6, ("cost of sampling", overhead))
    if not STAND_IN:
        parts += [
            ("dask-cuda", dask_cuda),
            ("dask-cuda, results moved to the host", moved),
            ("a worker without a GPU", missing),
            ("dask-cuda and RMM on Slurm", slurm),
            ("dask-cuda by UCX", ucx),
        ]
    for name, part in parts:
        if ONLY and name not in ONLY:
            continue
        began = time.monotonic()
        try:
            if began - BEGAN > LIMIT_S - 15:
                found["parts"][name] = {"left out": "no time was left"}
            else:
                found["parts"][name] = part() or {}
        except BaseException as error:  # noqa: BLE001  # the other parts go on
            found["parts"][name] = {"failed": f"{type(error).__name__}: {error}"[-2000:]}
            traceback.print_exc()
        found["parts"][name]["took_s"] = round(time.monotonic() - began, 1)
        print(f"[{time.monotonic() - BEGAN:5.0f} s] {name}: {json.dumps(found['parts'][name])[:1500]}", flush=True)
        (OUT / "check.json").write_text(json.dumps(found, indent=1))
        (OUT / "check.md").write_text(page())


def card() -> dict[str, Any]:
    versions = {}
    for package in ("torch", "cupy", "dask", "distributed", "apache_beam", "numpy", "google.protobuf", "typer"):
        with contextlib.suppress(Exception):
            versions[package] = str(__import__(package, fromlist=["x"]).__version__)
    query = "name,driver_version,memory.total,clocks.max.sm,mig.mode.current,compute_mode,persistence_mode"
    command = ["echo", "stand-in"] if STAND_IN else ["nvidia-smi", f"--query-gpu={query}", "--format=csv"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    from scalescope.capture import host

    return {"nvidia-smi": listed.stdout, "versions": versions, "host": host.facts()}


def nvml() -> dict[str, Any]:
    """What NVML's calls cost, how late and how smeared its utilisation is, and what it tells of processes."""
    import pynvml as n

    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByIndex(0)
    calls = {
        "utilisation": lambda: n.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory": lambda: n.nvmlDeviceGetMemoryInfo(handle).used,
        "throttle reasons": lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "processes": lambda: len(n.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    told: dict[str, Any] = {"call_us": {}, "values": {}}
    for name, call in calls.items():
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            told["values"][name] = call()
            times.append((time.perf_counter() - begin) * 1e6)
        told["call_us"][name] = {"median": round(sorted(times)[15], 1), "most": round(max(times), 1)}
    if STAND_IN:
        return told
    told["steps"] = _steps(n, handle)
    for name, call in {
        "utilisation samples": lambda: _samples(n, handle),
        "of processes": lambda: [(each.pid, each.smUtil) for each in n.nvmlDeviceGetProcessUtilization(handle, 0)],
    }.items():
        try:
            told[name] = call()
        except Exception as error:  # noqa: BLE001  # a card may not tell it
            told[name] = f"{type(error).__name__}: {error}"
    return told


def _steps(n: Any, handle: Any) -> dict[str, Any]:
    # Kernels for a second, a second without, in turn: how long after each change NVML tells it.
    import torch

    factor = torch.full((2048, 2048), 1e-3, device="cuda")
    changes: list[tuple[float, int]] = []
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            changes.append((time.monotonic(), 1))
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                _ = factor @ factor
                torch.cuda.synchronize()
            changes.append((time.monotonic(), 0))
            over.wait(1.0)

    worker = threading.Thread(target=compute)
    _ = factor @ factor
    torch.cuda.synchronize()
    worker.start()
    began, samples = time.monotonic(), []
    while time.monotonic() - began < 4.2:
        samples.append((time.monotonic(), n.nvmlDeviceGetUtilizationRates(handle).gpu))
        time.sleep(0.01)
    over.set()
    worker.join()
    lags: dict[str, list[float]] = defaultdict(list)
    for when, on in changes:
        after = [(at - when, value) for at, value in samples if 0 <= at - when < 1.0]
        levels = (("to half", 50), ("to the whole", 95)) if on else (("to half", 50), ("to nothing", 5))
        for name, level in levels:
            first = next((at for at, value in after if (value >= level if on else value <= level)), None)
            if first is not None:
                lags[f"{name}, after {'a begin' if on else 'an end'}"].append(round(first, 3))
    different = [at for (at, value), (_, before) in zip(samples[1:], samples, strict=False) if value != before]
    between = sorted(b - a for a, b in itertools.pairwise(different))
    return {
        "lag_s": lags,
        "shortest_s_between_changes": [round(each, 3) for each in between[:5]],
        "median_s_between_changes": round(between[len(between) // 2], 3) if between else None,
        "mean": round(sum(value for _, value in samples) / len(samples), 1),
        "trace": [(round(at - began, 2), value) for at, value in samples[::5]],
    }


def _samples(n: Any, handle: Any) -> dict[str, Any]:
    _kind, listed = n.nvmlDeviceGetSamples(handle, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
    stamps = [each.timeStamp for each in listed]
    gaps = sorted(b - a for a, b in itertools.pairwise(stamps))
    return {
        "count": len(stamps),
        "median_gap_us": gaps[len(gaps) // 2] if gaps else None,
        "last": [each.sampleValue.uiVal for each in listed[-10:]],
        "behind_now_s": round(time.time() - stamps[-1] / 1e6, 3) if stamps else None,
    }


class Watch:
    """NVML's utilisation, read by this process at 20 Hz."""

    def __enter__(self) -> Watch:
        import pynvml as n

        self.samples: list[tuple[float, float]] = []
        n.nvmlInit()
        handle, self.over = n.nvmlDeviceGetHandleByIndex(0), threading.Event()

        def look() -> None:
            while not self.over.wait(0.05):
                self.samples.append((time.time(), n.nvmlDeviceGetUtilizationRates(handle).gpu / 100))

        self.thread = threading.Thread(target=look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def mean(self, begin: float, end: float) -> float | None:
        inside = [busy for at, busy in self.samples if begin <= at <= end]
        return round(sum(inside) / len(inside), 3) if inside else None


def sweep(
    name: str,
    workload: str,
    axes: list[str],
    params: dict[str, Any],
    wanted: str,
    limit_s: float,
    cluster: Sequence[str] = ("local",),
) -> dict[str, Any]:
    arguments = ["sweep", "-w", workload, "--json", "-c", cluster[0]]
    for option in cluster[1:]:
        arguments += ["--cluster-option", option]
    for axis in axes:
        arguments += ["-a", axis]
    for key, value in params.items():
        arguments += ["-p", f"{key}={value}"]
    from scalescope.store.store import Store

    command = [sys.executable, "-c", CODE, *arguments]
    limit_s = min(limit_s, LIMIT_S - (time.monotonic() - BEGAN))
    with Watch() as watch:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    with (OUT / "sweeps.log").open("a") as file:
        file.write(f"== {name}: {' '.join(arguments)}\n{ran.stderr[-6000:]}\n")
    if not ran.stdout:
        raise RuntimeError(ran.stderr[-2000:])
    told = json.loads(ran.stdout)
    with Store.open() as store:
        trials = store.run(told["run"]).trials
        with (OUT / "samples.jsonl").open("a") as file:  # so that rules can be tried on them later
            for trial in trials:
                tables = store.tables(trial) if trial.records else {}
                rows = {table: len(next(iter(columns.values()), ())) for table, columns in tables.items()}
                chosen = {"tasks": ("prefix", "worker", "start", "stop")}
                for table in ("gpu", "tasks", "workers"):
                    columns = tables.get(table, {})
                    tables[table] = {key: columns[key] for key in chosen.get(table, columns) if key in columns}
                plain = {
                    table: {key: list(map(_plain, each)) for key, each in columns.items()}
                    for table, columns in tables.items()
                    if table in ("gpu", "tasks", "workers")
                }
                file.write(json.dumps({"name": name, "point": dict(trial.point.values), "tables": plain, "rows": rows}))
                file.write("\n")
    with (OUT / "sweeps.jsonl").open("a") as file:
        file.write(json.dumps({"name": name, "answer": told}) + "\n")
    findings = [
        (each["code"], each["severity"], each["summary"], each.get("fix") or each.get("remedy"))
        for each in told["verdict"]["findings"]
    ]
    codes = {code for code, *_ in findings}
    own = {code for code in codes if code.startswith("gpu-")}
    return {
        "arguments": " ".join(arguments[1:]),
        "verdict": findings[0][0] if findings else None,
        "as wanted": (not own if wanted == "healthy" else wanted in codes) if wanted else "not asked",
        "findings": findings,
        "points": [_point(each) for each in told["points"]],
        "trials": [_trial(each, watch) for each in trials],
    }


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _point(point: dict[str, Any]) -> dict[str, Any]:
    metrics = point["metrics"] or {}
    names = ("makespan_s", "elapsed_s", "gpu_busy", "gpu_memory_bytes", "gpus", "gpu_time_s", "gpu_by_prefix", "tasks")
    told = {"workers": point["workers"], "threads": point["threads"], **{name: metrics.get(name) for name in names}}
    if metrics.get("gpu_time_s"):
        told["sum_error_s"] = sum(metrics["gpu_time_s"].values()) - metrics["worker_time_s"]["busy"]
    return told | ({"reasons": point["reasons"]} if point["reasons"] else {})


def _trial(trial: Any, watch: Watch) -> dict[str, Any]:
    capture = trial.facts.get("capture") or {}
    begin, end = capture.get("t_begin", 0.0), capture.get("t_end", 0.0)
    return {
        "point": dict(trial.point.values),
        "warmup": trial.warmup,
        "state": str(trial.state),
        "reason": trial.reason[:400],
        "seconds": round(end - begin, 2),
        "nvml_mean_of_another_process": watch.mean(begin, end),
        "gpu_busy": trial.metrics.gpu_busy if trial.metrics else None,
        "gpus": capture.get("gpus"),
        "result": trial.facts.get("result"),
        "warnings": trial.warnings,
    }


def duty() -> dict[str, Any]:
    if STAND_IN:
        return {}
    asked = {"items": 8, "busy_s": 0.4, "idle_s": 0.4}
    return sweep("known duty", f"{FOLDER / 'duty.py'}:run", ["workers=1"], asked, "gpu-starved", 60)


def dask_cuda() -> dict[str, Any]:
    workers = [((*CUDA, "--device-memory-limit", "0.5"), {})]
    return on_scheduler("dask-cuda", workers, "gpu-train", TRAIN | {"items": 6, "steps": 250}, "")


def moved() -> dict[str, Any]:
    """Results of 2 GiB on a worker that may hold 0.8 GB of them on the card."""
    workers = [((*CUDA, "--device-memory-limit", "0.8GB"), {})]
    asked = {"items": 8, "chunk": 2048}
    return on_scheduler("dask-cuda, results moved to the host", workers, "gpu-array", asked, "gpu-memory-full")


def missing() -> dict[str, Any]:
    """Two workers, one from which the card is hidden."""
    workers = [(("worker", *WORKER), {}), (("worker", *WORKER), {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "4"})]
    asked = {"rows": 1024, "width": 1024, "items": 40, "steps": 40}
    return on_scheduler("a worker without a GPU", workers, "gpu-train", asked, "gpu-missing")


def ucx() -> dict[str, Any]:
    if importlib.util.find_spec("distributed_ucxx") is None:
        return {"left out": "there is no distributed-ucxx"}
    workers = [((*CUDA, "--rmm-pool-size", "0.1"), {})] * 2
    asked = {"items": 6, "chunk": 1024}
    return on_scheduler("dask-cuda by UCX", workers, "gpu-array", asked, "", "ucx", 8801)


def on_scheduler(
    name: str,
    workers: Sequence[tuple[Sequence[str], dict[str, str]]],
    workload: str,
    params: dict[str, Any],
    wanted: str,
    protocol: str = "tcp",
    port: int = 8799,
) -> dict[str, Any]:
    """A sweep on a scheduler and workers that are started here, each by the arguments of `dask` and environment."""
    address = f"{protocol}://127.0.0.1:{port}"
    with (OUT / "dask.log").open("a") as log, contextlib.ExitStack() as stack:

        def start(arguments: Sequence[str], environ: dict[str, str]) -> None:
            command, environ = [*DASK, *arguments], {**os.environ, **environ}
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/tmp", env=environ)
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)

        start(["scheduler", "--protocol", protocol, "--host", address, "--port", str(port), "--no-dashboard"], {})
        for arguments, environ in workers:
            start([*arguments, address], environ)
        axes = [f"workers={len(workers)}"]
        return sweep(name, workload, axes, params, wanted, 70, ("scheduler", f"address={address}"))


def slurm() -> dict[str, Any]:
    """A sweep whose jobs of a real Slurm start `dask cuda worker` with a pool of RMM."""
    from infra.slurm.mini import MiniSlurm, missing_programs

    absent = [*missing_programs(), *(name for name in ("dask_jobqueue", "rmm") if not importlib.util.find_spec(name))]
    if absent:
        return {"left out": f"there is no {absent[0]}"}
    cluster = MiniSlurm("/tmp/mini-slurm", nodes=1, cpus=16, memory_mb=100_000, gpus=1).start()
    os.environ.update(cluster.environment)
    options = ["gpus=1", "memory_mb=30000", "cuda_options=--rmm-pool-size=0.3"]
    try:
        asked = TRAIN | {"items": 6, "steps": 150}
        return sweep("dask-cuda and RMM on Slurm", "gpu-train", ["workers=1"], asked, "", 90, ("slurm", *options))
    finally:
        cluster.close()


def overhead() -> dict[str, Any]:
    """What a sample costs a loop of small training steps: steps in windows around it, and in windows without one."""
    if STAND_IN:
        return {}
    import numpy as np
    import torch

    from scalescope.capture.gpu import GpuSampler

    here = threading.get_ident()
    worker = SimpleNamespace(active_threads={here: "train-1"}, active_threads_lock=threading.Lock())
    small = torch.zeros(256, 256, device="cuda", requires_grad=True)
    data = torch.randn(64, 256, device="cuda")
    ends: list[float] = []

    def steps(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            ends.append(now)
            loss = ((data @ small) ** 2).mean()
            loss.backward()
            loss.item()

    steps(3.0)  # until the clocks of the card have risen
    ends.clear()
    begins: list[float] = []

    class Timed(GpuSampler):  # type: ignore[misc]
        def sample(self) -> Any:
            begins.append(time.monotonic())
            return super().sample()

    sampler = Timed()
    sampler.setup(worker)
    steps(40.0)
    sampler.teardown(worker)
    told, before, after = np.array(ends), 0.006, 0.019

    def counted(at: Any) -> Any:
        return np.searchsorted(told, at + after) - np.searchsorted(told, at - before)

    def lost(less: Any, more: Any) -> tuple[float, float]:
        # the part of all steps that is missing in windows, ten of them a second, and its standard error
        scale = 10 * (before + after) / more.mean()
        return round((more - less).mean() * scale, 5), round((more - less).std() / len(more) ** 0.5 * scale, 5)

    at = np.array(begins)[5:-5]
    around, between, other = counted(at), counted(at + 0.035), counted(at + 0.065)
    busy = SimpleNamespace(active_threads=dict.fromkeys(range(16), "x-1"), active_threads_lock=threading.Lock())
    costs = {}
    for name, seen in (("one thread", worker), ("16 threads", busy)):
        threads = [threading.Thread(target=time.sleep, args=(2,)) for _ in range(16)] if seen is busy else []
        for thread in threads:
            thread.start()
        if threads:
            seen.active_threads = {thread.ident: "x-1" for thread in threads}
        own = GpuSampler()
        own.setup(seen)
        own.over.set()
        begin = time.perf_counter()
        for _ in range(200):
            own.sample()
        costs[name] = round((time.perf_counter() - begin) / 200 * 1e6, 1)
    return {
        "samples": len(at),
        "window_s": before + after,
        "steps in a window": float(between.mean()),
        "cost": lost(around, (between + other) / 2),
        "of nothing": lost(other, between),
        "sample_us": costs,
    }


def page() -> str:
    parts = found["parts"]
    lines = ["# Seen on a card", "", f"{found['date']}: {parts.get('card', {}).get('nvidia-smi', '').strip()}", ""]
    heads = "workload,workers × threads,seconds,GPU busy,NVML read by another process,computing,loading,Python,copying"
    lines += [f"| {' | '.join([*heads.split(','), 'waiting', 'verdict'])} |", "|" + " --- |" * 11]
    for name, part in parts.items():
        trials = [each for each in part.get("trials", []) if not each["warmup"]]
        for point in part.get("points", []):
            asked = {"workers": point["workers"], "threads_per_worker": point["threads"] // point["workers"]}
            same = [each for each in trials if all(each["point"].get(key, 1) == asked[key] for key in asked)]
            other = same[0]["nvml_mean_of_another_process"] if same else None
            time_s = point.get("gpu_time_s") or {}
            shown = [point.get("makespan_s"), point.get("gpu_busy")]
            shown += map(time_s.get, ("computing", "loading", "python", "copying", "waiting"))
            cells = ["–" if each is None else f"{each:.2f}" for each in shown]
            cells[2:2] = [str(other)]
            size = f"{point['workers']} × {point['threads'] // point['workers']}"
            lines.append(f"| {name} | {size} | {' | '.join(cells)} | {part.get('verdict')} |")
    ended = {name: part.get("failed") or part.get("left out") for name, part in parts.items()}
    lines += ["", *(f"- {name}: {why}" for name, why in ended.items() if why)]
    lines += [
        f"- {name}: {summary} Fix: {fix}."
        for name, part in parts.items()
        for _, _, summary, fix in part.get("findings", [])
    ]
    return "\n".join(lines) + "\n"
