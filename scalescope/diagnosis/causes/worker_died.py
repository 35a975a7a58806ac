"""Workers died."""

from __future__ import annotations

from scalescope.diagnosis.evidence.departures import deaths
from scalescope.diagnosis.evidence.process_end import (
    KILLED_LINK,
    ON_PURPOSE,
    how_ended,
    lost_with_workers,
    severity_of_loss,
    traces_of,
)
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding
from scalescope.model.records import KUBERNETES
from scalescope.model.words import percent, plural

WORKER_DIED = TrialCause(
    code="worker-died",
    title="Workers died",
    needs="A worker left before the last computation ended, and nobody had asked it to (events remove-worker).",
    ruled_out_by="It left by request (scaled down, retired, closed gracefully) or after the work. One task was on "
    "every worker that died (worker-killing-task).",
    remedy="It depends on why the process ended, which the finding tells from exit code, nanny and log: memory, a "
    "native crash, the resource manager or a lost machine",
    link=KILLED_LINK,
    parts=("lost",),
    precedence=20,
    spoils=20,
    without_attempts=True,
)


@WORKER_DIED.finds
def worker_died(observation: Observation) -> Finding | None:
    """`lost_s`: the part `lost`. A trial made invalid by it is no measurement, which is severe however short it was."""
    dead = deaths(observation)
    if not dead:
        return None
    on_purpose = {death.worker for death in dead} == {observation.trial.facts.get("fault", {}).get("worker")}
    how, last = ON_PURPOSE if on_purpose else how_ended(dead), dead[-1]
    share = observation.share("lost")
    cut = len(frozenset().union(*(death.held for death in dead)))
    place = observation.place(last.worker) or f" on {last.host}"
    where = f"worker {last.name}{place}" if len(dead) == 1 else f"the last worker {last.name}{place}"
    more = f"; {plural(cut, 'task')} had to start again" if cut else ""
    loss = f", and {percent(share)} of the worker time was lost with them" if share >= 0.01 else ""
    is_said = not last.words or last.words.startswith(("Fatal", KUBERNETES))
    said = "" if is_said else f" Its log ends: {last.words}."
    return WORKER_DIED.finding(
        observation,
        lost_with_workers(observation),
        f"{plural(len(dead), 'worker')} died during the trial, {where}{how.text}{more}{loss}.{said}",
        how.look,
        Evidence("workers that died", len(dead), "table workers"),
        Evidence("tasks that were with them", cut, "table tasks"),
        *traces_of(dead),
        confidence=0.9 if last.exit_code is not None or last.over_memory else 0.8,
        severity=severity_of_loss(observation, share),
        link=how.link,
    )
