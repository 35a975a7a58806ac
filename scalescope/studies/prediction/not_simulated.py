"""Parts of a measured trial that its simulation does not repeat."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.analysis.events import Tables
from scalescope.analysis.graph_from_records import recorded_graph
from scalescope.analysis.scattered import scattered_data
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.evidence.waits_in_tasks import waits_for_others
from scalescope.diagnosis.observation import Observation
from scalescope.model.trial import Trial
from scalescope.studies.prediction.measured import work_of

MATTERS = 0.1  # smallest share of the time or of the tasks that is reported
SCATTERING = "of the time is `client.scatter`, which is not simulated"
ACTORS = "of the worker time is calls of actors, which are not simulated"
NESTED = "of the tasks were sent by other tasks, which are simulated as computing while they wait"
NEW = "of the tasks have prefixes that were not measured, and are simulated as taking no time"
FEW = 0.01  # smallest share of `NEW` tasks that is reported, since a single one may last long
WAITING = "of the worker time is tasks waiting for locks, queues or actors, which is simulated as computing"


def not_simulated(base: Observation, *, replayed: bool) -> dict[str, float]:
    """Shares of at least `MATTERS`, by the text that names the part. `replayed`: the recorded graph is run again."""
    shares = {
        SCATTERING: _scattering(base.tables),
        ACTORS: base.share("actors"),
        NESTED: _nested(base, replayed=replayed),
        WAITING: base.share_of(sum(float(wait["seconds"]) for wait in waits_for_others(base))),
    }
    return {text: share for text, share in shares.items() if share >= MATTERS}


def new_tasks(base: Trial, built: Sequence[Trial]) -> dict[str, float]:
    """The largest share, in any `built` trial, of tasks whose prefix `base` lacks, by `NEW`; empty if below `FEW`."""
    known, share = work_of(base), 0.0
    for trial in built:
        tasks = {prefix: work.tasks for prefix, work in work_of(trial).items()}
        new = sum(count for prefix, count in tasks.items() if prefix not in known)
        share = max(share, new / max(sum(tasks.values()), 1))
    return {NEW: share} if share >= FEW else {}


def _scattering(tables: Tables) -> float:
    """Share of the call's time that the client spent in `client.scatter`; 0 if that is simulated."""
    if scattered_data(tables).nbytes:
        return 0.0
    client = tables.get("client", {})
    took = dict.fromkeys((False, True), 0.0)
    for what, seconds in zip(client.get("what", ()), client.get("seconds", ()), strict=True):
        took[str(what).endswith(".scatter")] += float(seconds)
    return took[True] / sum(took.values()) if took[True] else 0.0


def _nested(base: Observation, *, replayed: bool) -> float:
    """Share of tasks that other tasks sent; 0 if the recorded graph is run again and its tasks send them, too."""
    sent = submissions(base)
    if not sent.nested_tasks or (replayed and any(task.sends for task in recorded_graph(base.tables).tasks)):
        return 0.0
    return sent.nested_tasks / (sent.nested_tasks + int(sent.tasks.sum()))
