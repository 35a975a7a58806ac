"""Memory and CPU of the scheduler and the workers over a trial, and other samples of workers, fetched in one call.

Resident memory and CPU come from the system monitor of each process, fetched once at the end: heartbeats would miss
short peaks, since they are up to 2.5 s apart with 300 workers. Managed and spilled bytes are from the last heartbeat.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from scalescope.capture import inside_tasks, process_samples
from scalescope.capture.shipping import Shipment
from scalescope.model.records import Columns, empty, from_rows
from scalescope.model.words import plural
from scalescope.redaction import masked

FEW = 8  # most workers that are all asked at once; of more workers, the first one's answer decides if others are asked
OFF_INTERVAL_S = 60.0  # seconds; a system monitor with a longer interval is off, as with many workers per process

UNPROFILED = "workers of this cluster share processes, whose profiler is off"

Managed = tuple[float, str, int, int]  # time, worker, managed bytes, spilled bytes


@dataclass
class Gathered:
    """Rows of `records.MEMORY`, `records.GPU` and `records.INSIDE`, and remarks about them."""

    columns: Columns = field(default_factory=lambda: empty("memory"))
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpus: dict[str, Any] = field(default_factory=dict)
    gpu_samples: Columns = field(default_factory=lambda: empty("gpu"))
    inside: Columns = field(default_factory=lambda: empty("inside"))
    same_calls: list[dict[str, Any]] = field(default_factory=list)  # messages of the events `SAME_CALL`
    unprofiled: str = ""  # why stacks of tasks are missing; empty if they are there
    # By worker: cores, threads, threads of a library's pool, and seconds that tasks waited for a core
    processes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    monitored: bool = False  # True if workers' system monitors are on, so that heartbeats come at the usual interval


NO_GPU = {
    "DISABLED_PYNVML_NOT_AVAILABLE": "pynvml is not installed with the workers (`pip install nvidia-ml-py`)",
    "DISABLED_CONFIG": "distributed.diagnostics.nvml is false",
    "DISABLED_LIBRARY_NOT_FOUND": "the workers' hosts have no NVIDIA driver",
    "DISABLED_WSL_INSUFFICIENT_DRIVER": "the NVIDIA driver is too old for NVML under WSL",
    "INITIALIZED": "NVML finds no GPU on the workers' hosts",
    "HIDDEN": "CUDA_VISIBLE_DEVICES of the workers names no GPU",
    "NOT_SAMPLED": "workers do not monitor themselves on this cluster",
    "NO_SAMPLES": "the trial was shorter than the interval of the samples",
}


def gather(client: Client, since: float, managed: Iterable[Managed] = (), *, timeout_s: float = 20.0) -> Gathered:
    """Collect the samples that all system monitors took since a time on the scheduler's clock.

    The memory of workers that share a process is counted once, for the first one. Errors of calls become `warnings`.
    """
    gathered = Gathered()
    shipment = Shipment(process_samples, "memory_samples")

    async def collect() -> tuple[dict[str, Any], dict[str, Any]]:
        scheduler = await client._run_on_scheduler(shipment, since)
        count, first = scheduler["workers"], scheduler["first_worker"]
        if count > FEW:
            probe = await client._run(shipment, since, False, workers=[first], on_error="return")
            if all(_is_off(sample) for sample in probe.values()):
                return scheduler, probe
        return scheduler, await client._run(shipment, since, on_error="return") if count else {}

    async def limited() -> tuple[dict[str, Any], dict[str, Any]]:
        return await asyncio.wait_for(collect(), timeout_s)

    try:
        scheduler, workers = client.sync(limited)
    except Exception as error:  # noqa: BLE001  # the trial goes on with a warning
        why = str(error) or f"the answer took longer than {timeout_s:g} s"
        gathered.warnings.append(f"memory and CPU over the trial could not be fetched: {why}")
        return gathered
    silent = [worker for worker, sample in workers.items() if isinstance(sample, BaseException)]
    if silent:
        gathered.warnings.append(
            f"memory and CPU of {plural(len(silent), 'worker')} could not be fetched, such as {silent[0]}"
        )
    if workers and all(_is_off(sample) for sample in workers.values()):
        gathered.notes.append("workers do not monitor their memory on this cluster")
        gathered.unprofiled = UNPROFILED
    told = {key: sample["gpu"] for key, sample in workers.items() if key not in silent}
    gathered.gpus, gathered.gpu_samples = gpus(told), _gpu_samples(told)
    asked = [sample["inside"] for key, sample in workers.items() if key not in silent and sample["inside"]]
    gathered.inside, gathered.same_calls = _inside(asked), _same_calls(asked)
    gathered.unprofiled = gathered.unprofiled or next((each["absent"] for each in asked if each["absent"]), "")
    gathered.processes = {
        key: (sample["cores"], sample["threads"], sample["pool"], (sample["inside"] or {}).get("core_wait_s", 0.0))
        for key, sample in workers.items()
        if key not in silent
    }
    gathered.monitored = any(key not in silent and not _is_off(sample) for key, sample in workers.items())
    samples = {
        key: sample
        for key, sample in {"scheduler": scheduler, **workers}.items()
        if key not in silent and not _is_off(sample)
    }
    gathered.columns = _columns(samples, managed)
    shared = len(samples) - len({sample["process"] for sample in samples.values()})
    if shared:
        gathered.notes.append(
            f"{plural(shared, 'worker')} shared a process with another worker; the memory of a process is counted once"
        )
    return gathered


def gpus(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Facts of the workers' GPUs by address (`workers`), and reasons why other workers have none (`absent`)."""
    missing = Counter(NO_GPU.get(gpu["absent"], gpu["absent"]) for gpu in told.values() if "absent" in gpu)
    return {
        "workers": {address: gpu["facts"] for address, gpu in told.items() if "facts" in gpu},
        "absent": [
            why if count == len(told) else f"{count} of {len(told)} workers: {why}" for why, count in missing.items()
        ],
    }


def _gpu_samples(told: Mapping[str, Mapping[str, Any]]) -> Columns:
    found: Columns = empty("gpu")
    for worker, gpu in told.items():
        for name, values in gpu.get("columns", {}).items():
            found[name].extend(values)
        rows = len(found["time"]) - len(found["worker"])
        found["worker"] += [worker] * rows
        found["gpu"] += [gpu["facts"]["uuid"]] * rows if rows else []
    return found


def _inside(asked: Iterable[Mapping[str, Any]]) -> Columns:
    stacks: dict[str, Counter[str]] = {}
    for each in asked:
        for prefix, found in each["stacks"].items():
            stacks.setdefault(prefix, Counter()).update(found)
    told = {prefix: inside_tasks.shortened(found) for prefix, found in stacks.items()}
    rows = [
        {"prefix": prefix, "stack": stack, "samples": samples}
        for prefix, found in told.items()
        for stack, samples in found.items()
    ]
    return from_rows("inside", rows)


def _same_calls(asked: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the events `SAME_CALL`: calls that read something and that tasks in one process repeated."""
    seen = Counter[str]()
    found: dict[tuple[str, ...], Counter[str]] = {}
    for each in asked:
        for prefix, (tasks, calls) in each["calls"].items():
            seen[prefix] += tasks
            for *call, samples, reading, of_tasks in calls:
                counts = {"samples": samples, "reading": reading, "tasks": of_tasks, "processes": 1}
                found.setdefault((prefix, *call), Counter()).update(counts)
    return [
        {"prefix": prefix, "call": call, "arguments": masked(arguments), "where": where, **counts, "seen": seen[prefix]}
        for (prefix, call, arguments, where), counts in found.items()
        if counts["tasks"] > counts["processes"] and counts["reading"]
    ]


def _is_off(sample: Any) -> bool:
    return isinstance(sample, dict) and sample["interval_s"] > OFF_INTERVAL_S


def _columns(samples: Mapping[str, Mapping[str, Any]], managed: Iterable[Managed]) -> Columns:
    known: dict[str, list[Managed]] = {}
    for row in managed:
        known.setdefault(row[1], []).append(row)
    rows, processes = [], set()
    for worker, found in samples.items():
        if found["process"] in processes:
            continue
        processes.add(found["process"])
        heard = known.get(worker, [])
        before = float("-inf")
        for when, rss, cpu in found["samples"]:
            latest = bisect_right(heard, when, key=lambda row: row[0]) - 1
            _, _, kept, spilled = heard[latest] if latest >= 0 else (when, worker, 0, 0)
            spent = sum(max(min(end, when) - max(begin, before), 0.0) for begin, end in found["collections"])
            held = {"managed": kept, "spilled": spilled}
            rows.append({"worker": worker, "time": when, "rss": rss, "cpu": cpu, "collecting": spent, **held})
            before = when
    return from_rows("memory", rows)
