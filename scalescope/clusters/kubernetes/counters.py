"""Counters of Dask's processes, read before and after a trial: garbage collection, interpreter lock, spilling, CPU.

This module is sent to schedulers and workers, so it imports only the standard library and `distributed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

THROTTLED = "container_cpu_cfs_throttled_seconds_total"  # cAdvisor's name; the others are Dask's

NAMES = (
    "gc_collection_seconds_total",
    "gil_contention_seconds_total",
    "transfer_outgoing_bytes_total",
    "spill_bytes_total",
    "spill_time_seconds_total",
)
# File, field, and the field's unit in seconds; for cgroup versions 2 and 1.
_CPU_STAT = (("cpu.stat", "throttled_usec", 1e-6), ("cpu/cpu.stat", "throttled_time", 1e-9))


def read(dask_worker: Any = None) -> dict[str, float]:
    """The counters of this process by name and labels; without prometheus_client, Dask's own are missing."""
    return {**_of_dask(dask_worker), **_of_container(Path("/sys/fs/cgroup"))}


def _of_dask(server: Any) -> dict[str, float]:
    try:
        if hasattr(server, "task_prefixes"):
            from distributed.http.scheduler.prometheus.core import SchedulerMetricCollector as Collector
        else:
            from distributed.http.worker.prometheus.core import WorkerMetricCollector as Collector
    except ImportError:
        return {}
    found = {}
    for metric in Collector(server).collect():
        for sample in metric.samples:
            if sample.name.endswith(NAMES):
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = float(sample.value)
    return found


def _of_container(root: Path) -> dict[str, float]:
    for name, field, unit in _CPU_STAT:
        try:
            lines = (root / name).read_text().splitlines()
        except OSError:
            continue
        values = dict(line.split(None, 1) for line in lines)
        if field in values:
            return {THROTTLED: int(values[field]) * unit}
    return {}


def grown(before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Growth of counters: of the scheduler, of all workers together, and of the worker with the largest growth.

    Arguments: counters by process (`scheduler` or an address). Processes that are not in both are left out.
    """
    by_name: dict[str, list[float]] = {}
    scheduler = {}
    for process, counters in after.items():
        for name, value in counters.items():
            if process not in before:
                continue
            more = round(value - before[process].get(name, 0.0), 6)
            if process == "scheduler":
                scheduler[name] = more
            else:
                by_name.setdefault(name, []).append(more)
    workers = {name: {"sum": round(sum(each), 6), "most": max(each)} for name, each in by_name.items()}
    return {"scheduler": scheduler, "workers": workers}
