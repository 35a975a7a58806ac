"""The GPUs of the workers, and the task prefixes that use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.analysis.gpu import GpuTime, gpu_time
from scalescope.diagnosis.observation import Observation, once

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


def facts_of_gpus(observation: Observation) -> Mapping[str, Mapping[str, Any]]:
    """What the workers' samplers said of their cards, by address (`capture.memory.gpus`)."""
    facts = (observation.trial.facts.get("capture") or {}).get("gpus") or {}
    return dict(facts.get("workers") or {})


def names_of_cards(observation: Observation) -> str:
    names = sorted({str(each["name"]) for each in facts_of_gpus(observation).values() if "name" in each})
    return f" ({', '.join(names)})" if names else ""
