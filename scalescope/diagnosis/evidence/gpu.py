"""The GPUs of the workers, and the task prefixes that use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalescope.analysis.gpu import GpuTime, gpu_time
from scalescope.diagnosis.observation import Observation, once
from scalescope.model.metrics import GPU_IDLE

USES = 0.05  # mean utilisation, or share of copying, from which tasks count as using the GPU


@once
def gpus(observation: Observation) -> GpuTime | None:
    """None where no worker has a GPU whose samples were recorded."""
    time = observation.worker_time
    return None if time is None else gpu_time(observation.tables, observation.measured, time.parts["busy"][:-1])


@once
def on_gpu(observation: Observation) -> frozenset[str]:
    """Task prefixes during which the GPU computed, or data was copied to or from it."""
    found = gpus(observation)
    return frozenset(
        prefix
        for prefix, use in (found.prefixes.items() if found else ())
        if use.utilisation >= USES or use.seconds["copying"] >= USES * sum(use.seconds.values()) > 0
    )


def seconds_of(found: GpuTime, prefixes: Collection[str]) -> dict[str, float]:
    """Busy thread-seconds of these prefixes while the GPU computed, and by part of `GPU_IDLE`."""
    return {part: sum(found.prefixes[prefix].seconds[part] for prefix in prefixes) for part in ("computing", *GPU_IDLE)}


@dataclass(frozen=True)
class _Looks:
    """What the samples of one worker saw: how many there are, and tasks per sample."""

    samples: int
    with_tasks: float  # share of samples with a task
    tasks: float
    copying: float  # tasks that copied, or waited for the GPU


@once
def _looks(observation: Observation) -> Mapping[str, _Looks]:
    seen: dict[str, dict[float, list[str]]] = {}
    columns = (observation.column("gpu", name) for name in ("worker", "time", "prefix", "doing"))
    for worker, when, prefix, doing in zip(*columns, strict=True):
        tasks = seen.setdefault(worker, {}).setdefault(when, [])
        if prefix:
            tasks.append(doing)
    return {
        worker: _Looks(
            len(each),
            sum(map(bool, each.values())) / len(each),
            sum(map(len, each.values())) / len(each),
            sum(tasks.count("copying") for tasks in each.values()) / len(each),
        )
        for worker, each in seen.items()
    }


def at_once(observation: Observation, workers: Collection[str]) -> tuple[float, float]:
    """Tasks at a time on these workers while one runs there, and those that copy or wait for the GPU."""
    looks = [_looks(observation)[worker] for worker in workers]
    running = max((each.with_tasks for each in looks), default=0.0)
    if not running:
        return 0.0, 0.0
    return sum(each.tasks for each in looks) / running, sum(each.copying for each in looks) / running


def facts_of_gpus(observation: Observation) -> Mapping[str, Mapping[str, Any]]:
    """What the workers' samplers said of their cards, by address (`capture.memory.gpus`)."""
    facts: Mapping[str, Mapping[str, Any]] = (
        (observation.trial.facts.get("capture") or {}).get("gpus", {}).get("workers", {})
    )
    return facts


def names_of_cards(observation: Observation) -> str:
    names = sorted({str(each["name"]) for each in facts_of_gpus(observation).values() if "name" in each})
    return f" ({', '.join(names)})" if names else ""


def has_gpu(observation: Observation, found: GpuTime) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each worker (`Attempts.addresses`) has a GPU."""
    workers = {worker for card in found.cards.values() for worker in card.workers}
    return np.array([address in workers for address in observation.measured.addresses])
