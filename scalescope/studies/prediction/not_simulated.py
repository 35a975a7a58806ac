"""What a measured trial did that no simulation of it repeats."""

from __future__ import annotations

from scalescope.analysis.events import Tables
from scalescope.analysis.graph_from_records import recorded_graph
from scalescope.analysis.scattered import scattered_data
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.evidence.waits_in_tasks import waits_for_others
from scalescope.diagnosis.observation import Observation

MATTERS = 0.1  # share of the time, or of the tasks, from which on that matters
SCATTERING = "of its time is `client.scatter`, which is not simulated"
ACTORS = "of its worker time is calls of actors, which are not simulated"
NESTED = "of its tasks are sent by tasks, whose waiting is taken for computing"
WAITING = "of its worker time is tasks that wait for locks, queues or actors, which is taken for computing"


def not_simulated(base: Observation, *, replayed: bool) -> dict[str, float]:
    """The shares that matter, by what they are; `replayed`: whether the recorded graph is run again."""
    shares = {
        SCATTERING: _scattering(base.tables),
        ACTORS: base.share("actors"),
        NESTED: _nested(base, replayed=replayed),
        WAITING: base.share_of(sum(float(wait["seconds"]) for wait in waits_for_others(base))),
    }
    return {text: share for text, share in shares.items() if share >= MATTERS}


def _scattering(tables: Tables) -> float:
    """The part of the call's time that the client spent in `client.scatter`; 0 where that is simulated."""
    if scattered_data(tables).nbytes:
        return 0.0
    client = tables.get("client", {})
    took = dict.fromkeys((False, True), 0.0)
    for what, seconds in zip(client.get("what", ()), client.get("seconds", ()), strict=True):
        took[str(what).endswith(".scatter")] += float(seconds)
    return took[True] / sum(took.values()) if took[True] else 0.0


def _nested(base: Observation, *, replayed: bool) -> float:
    """The part of the tasks that tasks sent; 0 where it is known which sent what, and they do so again."""
    sent = submissions(base)
    if not sent.nested_tasks or (replayed and any(task.sends for task in recorded_graph(base.tables).tasks)):
        return 0.0
    return sent.nested_tasks / (sent.nested_tasks + int(sent.tasks.sum()))
