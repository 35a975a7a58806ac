"""The GPUs of the workers, and the task prefixes that use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.analysis.gpu import GpuTime, gpu_time
from scalescope.analysis.worker_time import divide
from scalescope.diagnosis.observation import Observation, once


@once
def gpus(observation: Observation) -> GpuTime | None:
    """The GPUs of the workers; None if no samples of any were recorded."""
    attempts = observation.attempts
    if attempts is None or not len(observation.column("gpu", "time")):
        return None
    busy = divide(attempts, threads=observation.threads).parts["busy"][:-1]
    return gpu_time(observation.tables, attempts, busy)


def on_gpu(observation: Observation) -> frozenset[str]:
    """Task prefixes that use the GPU."""
    found = gpus(observation)
    return found.using if found else frozenset()


def moved_bytes(observation: Observation) -> int:
    """Bytes of results that dask-cuda moved between GPUs and hosts, both ways."""
    return sum(each["moved"] for each in facts_of_gpus(observation).values())


def facts_of_gpus(observation: Observation) -> Mapping[str, Mapping[str, Any]]:
    """Facts that the workers' samplers noted about their cards, by address (`capture.memory.gpus`)."""
    facts = (observation.trial.facts.get("capture") or {}).get("gpus") or {}
    return dict(facts.get("workers") or {})


def names_of_cards(observation: Observation) -> str:
    names = sorted({str(each["name"]) for each in facts_of_gpus(observation).values() if "name" in each})
    return f" ({', '.join(names)})" if names else ""
