"""Parts of the worker time of a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalescope.analysis.summary import PointSummary
from scalescope.analysis.summary import worst_point as worst_point
from scalescope.model.metrics import BUSY_PARTS, GPU_PARTS, PARTS, WORKER_TIME, Metrics
from scalescope.model.words import percent, plural

WORTH_A_WORD = 0.05  # smallest share of worker time whose cause is named
WORTH_SPLITTING = 0.01  # smallest share of worker time, spent waiting for late tasks, that is shown separately


@dataclass(frozen=True)
class WorkerTimeShare:
    """One part of the worker time of a point."""

    name: str  # a key of `WORKER_TIME`
    title: str
    seconds: float  # thread-seconds
    percent: int  # all parts add up to 100


def worker_time_parts(metrics: Metrics) -> tuple[WorkerTimeShare, ...]:
    seconds = {part: metrics.worker_time_s.get(part, 0.0) for part in WORKER_TIME}
    percents = apportion(list(seconds.values()), 100)
    return tuple(
        WorkerTimeShare(name, PARTS[name].title, value, percent)
        for (name, value), percent in zip(seconds.items(), percents, strict=True)
        if value > 0
    )


def lost_to(summary: PointSummary) -> str:
    """Main losses of worker time, with shares; empty if unknown or too small to name."""
    whole = sum(summary.metrics.worker_time_s.values()) if summary.metrics else 0.0
    found = []
    for text, seconds in summary.blamed.items():
        if seconds >= WORTH_A_WORD * whole > 0:
            later = summary.passed_on.get(text, 0.0)
            parts = f" ({percent((seconds - later) / whole)} direct, {percent(later / whole)} passed on)"
            found.append(f"{text} {percent(seconds / whole)}" + parts * (later >= WORTH_SPLITTING * whole))
    return "; ".join(found)


def busy_line(metrics: Metrics) -> str:
    """The parts of busy time inside tasks, and the line of code with most of it; empty if not recorded."""
    told = busy_parts(metrics.busy_time_s or {})
    worst = next(iter((metrics.busy_by_prefix or {}).items()), None)
    if not told or worst is None or not worst[1].where:
        return told
    prefix, most = worst
    what = f"in `{most.what}` at " if most.what else "at "
    return f"{told}; `{prefix}` spends {percent(most.share)} of its time {what}{most.where}"


def busy_parts(seconds: Mapping[str, float]) -> str:
    """The parts of busy time that are at least half a percent of it."""
    whole = sum(seconds.values())
    shares = {BUSY_PARTS[part].title: each / whole for part, each in seconds.items() if each > 0}
    return ", ".join(f"{title} {percent(share)}" for title, share in shares.items() if share >= 0.005)


def gpu_line(metrics: Metrics) -> str:
    """Share of time in which GPUs computed, and what busy threads did while tasks ran; empty without GPUs."""
    if metrics.gpu_time_s is None or metrics.gpu_busy is None:
        return ""
    whole = sum(metrics.gpu_time_s.values())
    parts = [
        f"{GPU_PARTS[part].title} {percent(seconds / whole)}"
        for part in GPU_PARTS
        if (seconds := metrics.gpu_time_s.get(part, 0.0)) > 0
    ]
    number = plural(round(metrics.gpus or 0), "GPU")
    return f"{number} busy {percent(metrics.gpu_busy)} of the time; while tasks ran: {', '.join(parts)}"


def apportion(amounts: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to `amounts` that add up to `total` (Hamilton's method); all 0 if all amounts are."""
    whole = math.fsum(amounts)
    if not whole > 0:
        return [0] * len(amounts)
    exact = [amount / whole * total for amount in amounts]
    result = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (result[i] - exact[i], i))
    for i in by_remainder[: total - sum(result)]:
        result[i] += 1
    return result
