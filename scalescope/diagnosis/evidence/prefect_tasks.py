"""What Prefect did around the functions of a flow's tasks, by prefix (`scalescope.capture.waits` notes it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.observation import Observation, once

PREFECT = "Prefect."  # begins the `what` of an event of topic `waits` that is no wait
ASKING = 3.0  # times what it takes to give back a slot, up to which asking for one takes; more is waiting
KNOWN = 0.9  # share of a prefix's attempts whose function must have been noted, for the rest to be Prefect's own time


@dataclass
class PrefectSeconds:
    """Thread-seconds within the tasks of one prefix."""

    prefix: str
    tasks: int = 0  # whose function was noted
    function: float = 0.0  # the user's function, where it returned or was not tried again
    raised: float = 0.0  # the function, where it raised and was tried again
    retry: float = 0.0  # waiting to try again
    server: float = 0.0  # starting a temporary server
    servers: int = 0  # tasks that started one, which is once in a process
    persist: float = 0.0  # writing results
    hash: float = 0.0  # hashing inputs, for the key of the cache
    release: float = 0.0  # giving back slots of concurrency limits
    releases: int = 0  # tasks that gave back a slot
    engine: float = 0.0  # the rest: Prefect's own time
    errors: set[str] = field(default_factory=set)  # names of the exceptions that were tried again

    @property
    def around(self) -> float:
        """What is around the function, without waits, retries and servers."""
        return self.engine + self.persist + self.hash


@once
def prefect_seconds(observation: Observation) -> Mapping[str, PrefectSeconds]:
    """By prefix; empty where no task was one of Prefect's."""
    found: dict[str, PrefectSeconds] = {}
    noted: dict[str, float] = {}
    for _, event in observation.events("waits"):
        prefix, seconds, tasks = str(event["prefix"]), float(event["seconds"]), int(event["tasks"])
        noted[prefix] = noted.get(prefix, 0.0) + seconds
        if not str(event["what"]).startswith(PREFECT):
            continue
        each = found.setdefault(prefix, PrefectSeconds(prefix))
        part, _, error = str(event["what"]).removeprefix(PREFECT).partition(" ")
        setattr(each, part, getattr(each, part, 0.0) + seconds)
        each.tasks += tasks if part == "function" else 0
        each.servers += tasks if part == "server" else 0
        each.releases += tasks if part == "release" else 0
        each.errors |= {error} if error else set()
    if observation.attempts is None:
        return found
    names, place = task_prefixes(observation)
    ran = np.bincount(place, observation.attempts.stop - observation.attempts.start, minlength=len(names))
    attempts = np.bincount(place, minlength=len(names))
    for name, seconds, count in zip(names, ran.tolist(), attempts.tolist(), strict=True):
        if name in found and found[name].tasks >= KNOWN * count:
            found[name].engine = max(seconds - noted[name] + found[name].release, 0.0)
    return found


def waits(observation: Observation) -> list[Mapping[str, Any]]:
    """Events of topic `waits` that tell of waits; for slots of limits, without what asking for a slot takes anyway."""
    found: list[Mapping[str, Any]] = []
    for _, event in observation.events("waits"):
        what, seconds = str(event["what"]), float(event["seconds"])
        if what.startswith("concurrency(") and (each := prefect_seconds(observation).get(str(event["prefix"]))):
            asking_s = ASKING * each.release / max(each.releases, 1)
            seconds = max(seconds - int(event["tasks"]) * asking_s, 0.0)
        if not what.startswith(PREFECT):
            found.append({**event, "seconds": seconds})
    return found
