"""Time of Prefect around the functions of a flow's tasks, by prefix (`scalescope.capture.waits` notes it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scalescope.analysis.attempts import Bools
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.observation import Observation, once

PREFECT = "Prefect."  # start of `what` in events with topic `waits` that note time of Prefect instead of a wait
ASKING = 3.0  # ratio of the time to ask for a slot to the time to give it back, beyond which asking counts as waiting
KNOWN = 0.9  # least share of a prefix's attempts with a noted function, for their other time to count as Prefect's own


@dataclass
class PrefectSeconds:
    """Thread-seconds within the tasks of one prefix."""

    prefix: str
    tasks: int = 0  # tasks whose function was noted
    function: float = 0.0  # seconds of the user's function, where it returned or was not tried again
    raised: float = 0.0  # seconds of the user's function, where it raised and was tried again
    retry: float = 0.0  # seconds of waiting to try again
    server: float = 0.0  # seconds of starting a temporary server
    servers: int = 0  # tasks that started a temporary server, which happens once per process
    persist: float = 0.0  # seconds of writing results
    hash: float = 0.0  # seconds of hashing inputs for the key of the cache
    api: float = 0.0  # seconds of requests to the Prefect server
    release: float = 0.0  # seconds of giving back slots of concurrency limits
    releases: int = 0  # tasks that gave back a slot
    engine: float = 0.0  # remaining seconds of Prefect itself, without `first`
    first: float = 0.0  # excess seconds of the first tasks of each worker, whose process imports Prefect then
    firsts: int = 0  # number of workers whose first tasks `first` counts
    errors: set[str] = field(default_factory=set)  # names of the exceptions that were tried again

    @property
    def around(self) -> float:
        """Seconds around the function, without waits, retries and servers."""
        return self.engine + self.persist + self.hash + self.api


@once
def prefect_seconds(observation: Observation) -> Mapping[str, PrefectSeconds]:
    """Seconds by prefix; empty if no task was one of Prefect's."""
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
    attempts, lasted = observation.attempts, observation.attempts.stop - observation.attempts.start
    names, place = task_prefixes(observation)
    began = _first_on_worker(observation)
    for number, name in enumerate(names):
        own = place == number
        if name not in found or found[name].tasks < KNOWN * own.sum():
            continue
        each = found[name]
        engine = max(float(lasted[own].sum()) - noted[name] + each.release, 0.0)
        later, first = lasted[own & ~began], lasted[own & began]
        usual = float(np.median(later)) if len(later) else each.function / max(each.tasks, 1)
        each.first = min(max(float((first - usual).sum()) - each.server, 0.0), engine)
        each.firsts = len(np.unique(attempts.worker[own & began]))
        each.engine = engine - each.first
    return found


@once
def sent_per_second(observation: Observation) -> float:
    """Tasks that the flow sent in a second, between the first and the last; 0 where it sent fewer than three."""
    sent = submissions(observation)
    return float(sent.tasks[1:].sum() / np.ptp(sent.time)) if len(sent.time) > 2 and np.ptp(sent.time) > 0 else 0.0


def _first_on_worker(observation: Observation) -> Bools:
    """Attempts that began before any other had ended on their worker."""
    attempts = observation.measured
    ended = np.full(len(attempts.addresses), np.inf)
    np.minimum.at(ended, attempts.worker, attempts.stop)
    first: Bools = attempts.start < ended[attempts.worker]
    return first


def waits(observation: Observation) -> list[Mapping[str, Any]]:
    """Events of topic `waits` that are waits; those for a concurrency limit, less the usual time to ask for a slot."""
    found: list[Mapping[str, Any]] = []
    for _, event in observation.events("waits"):
        what, seconds = str(event["what"]), float(event["seconds"])
        if what.startswith("concurrency(") and (each := prefect_seconds(observation).get(str(event["prefix"]))):
            asking_s = ASKING * each.release / max(each.releases, 1)
            seconds = max(seconds - int(event["tasks"]) * asking_s, 0.0)
        if not what.startswith(PREFECT):
            found.append({**event, "seconds": seconds})
    return found
