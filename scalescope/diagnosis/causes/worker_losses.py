"""Workers died, or never came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis.cause import NOTEWORTHY, severity_of
from scalescope.diagnosis.causes.memory import unmanaged_remedy
from scalescope.diagnosis.evidence.departures import Departure, after_all_results, deaths, departures, given_up
from scalescope.diagnosis.evidence.kept_memory import kept_memory, large_block
from scalescope.diagnosis.evidence.process_end import (
    KILLED_LINK,
    MORE_MEMORY,
    ON_PURPOSE,
    how_ended,
    lost_with_workers,
    severity_of_loss,
    traces_of,
    untold,
)
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.errors import told
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.records import KUBERNETES
from scalescope.model.words import percent, plural

WORKER_DIED = TrialCause(
    code="worker-died",
    title="Workers died",
    needs="A worker left before the last computation ended, and nobody had asked it to (events remove-worker).",
    ruled_out_by="The worker left by request (scaled down, retired, closed gracefully) or after the work: every task "
    "had finished once, and the client waited for nothing more (information). One task was on every worker that died "
    "(worker-killing-task).",
    remedy="Depends on why the process ended; the finding tells this from exit code, nanny and log: memory, a native "
    "crash, the resource manager or a lost machine",
    link=KILLED_LINK,
    parts=("lost",),
    predicts=False,
    rules_out=("invalid-trials",),
    precedence=20,
    without_attempts=True,
    premise="Exit codes and logs say how the processes ended.",
)


@WORKER_DIED.finds
def worker_died(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `lost`; all time if no task finished; 0 if workers died after all results."""
    dead = deaths(observation)
    if not dead:
        return None
    late = [death for death in dead if after_all_results(observation, death)]
    if len(late) == len(dead):
        return _after_all_results(observation, late)
    dead = tuple(death for death in dead if death not in late)
    on_purpose = {death.worker for death in dead} == {observation.trial.facts.get("fault", {}).get("worker")}
    how, last = ON_PURPOSE if on_purpose else how_ended(dead, observation.trial.reason), dead[-1]
    share = observation.share("lost")
    cut = len(frozenset().union(*(death.held for death in dead)))
    place = observation.place(last.worker) or f" on {last.host}"
    where = f"worker {last.name}{place}" if len(dead) == 1 else f"the last of them worker {last.name}{place}"
    more = f"; {plural(cut, 'task')} had to start again" if cut else ""
    refused = len(given_up(observation))
    more += f"; the scheduler gave up on {plural(refused, 'task')} (KilledWorker)" if refused else ""
    loss = f", and {percent(share)} of the worker time was lost as a result" if share >= 0.01 else ""
    filled, remedy = _filled_by(observation) if how.look == MORE_MEMORY else ("", "")
    said = (
        f" {words.capital(filled)}."
        if filled
        else ""
        if not last.words or last.words.startswith(("Fatal", KUBERNETES))
        else f" Its log ends: {last.words}."
    )
    return WORKER_DIED.finding(
        observation,
        lost_with_workers(observation),
        f"{plural(len(dead), 'worker')} died during the trial, {where}{how.text}{more}{loss}.{said}"
        + untold(observation),
        remedy or how.look,
        Evidence("workers that died", len(dead), "table workers"),
        Evidence("tasks on workers that died", cut, "table tasks"),
        *traces_of(dead),
        confidence=0.9 if last.exit_code is not None or last.over_memory else 0.8,
        severity=Severity.HIGH if refused else severity_of_loss(observation, share),
        link=how.link,
    )


def _filled_by(observation: Observation) -> tuple[str, str]:
    """Clause on what filled the memory of the workers, and the remedy; both empty if unknown."""
    if (block := large_block(observation)) is not None:
        return block.text, block.remedy
    kept = kept_memory(observation)
    return (kept.text, unmanaged_remedy(observation, kept)) if kept is not None and kept.stays else ("", "")


def _after_all_results(observation: Observation, late: Sequence[Departure]) -> Finding:
    again = len(frozenset().union(*(death.held for death in late)))
    return WORKER_DIED.finding(
        observation,
        0.0,
        f"{plural(len(late), 'worker')} ended when every task had finished, and nobody waited for the results that "
        "were lost: this cost nothing.",
        "nothing has to be done; if you call `client.retire_workers` before you end workers, the scheduler does not "
        "compute their results again",
        Evidence("workers that ended", len(late), "table workers"),
        Evidence("tasks on workers that ended", again, "table tasks"),
        confidence=0.9,
        severity=Severity.INFO,
    )


WORKERS_MISSING = TrialCause(
    code="workers-missing",
    title="Fewer workers than asked for",
    needs="Scalescope gave up waiting for workers, or threads that were asked for were absent while tasks waited for "
    "them.",
    ruled_out_by="The workers joined later (late-workers) or died (worker-died). No task waited for them.",
    remedy="Wait for the workers before the work begins, and keep them until it ends",
    link=f"{KILLED_LINK}#worker-never-connects",
    parts=("late_start", "lost"),
    rules_out=("invalid-trials",),
    precedence=30,
    without_attempts=True,
    premise="The records show when workers came and went.",
)


@WORKERS_MISSING.finds
def workers_missing(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of absent threads for which tasks waited, without workers that came later or died."""
    error = observation.trial.facts.get("error") or {}
    if error.get("type") == "WorkersMissing":
        return _never_complete(observation, str(error.get("message", "")))
    if observation.attempts is None:
        return None
    line = timeline(observation)
    away = _away(observation)
    lost_s = line.integral(np.minimum(away, line.waiting))
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    left = [departure for departure in departures(observation) if departure.expected]
    if left and "next" in told(observation.trial.reason):
        return None  # the trial's reason tells why they left, and what to do
    mean = line.integral(away) / observation.attempts.makespan
    why = "never came"
    if left:
        why = f"left by request and were not replaced ({words.some([departure.name for departure in left])})"
    return WORKERS_MISSING.finding(
        observation,
        lost_s,
        f"On average over the trial, {mean:,.1f} of {plural(observation.threads, 'thread')} asked for were missing, "
        f"and tasks waited for them: workers {why}; {percent(share)} of the worker time was lost.",
        "keep workers for the whole run: no `cluster.adapt(...)`, no `--lifetime` shorter than the run, and "
        "`client.wait_for_workers(n)` before the run begins"
        if left
        else "wait for the workers with `client.wait_for_workers(n)` before the work begins, and look into the logs of "
        "the platform for why the others did not come",
        Evidence("threads asked for", observation.threads, "the point"),
        Evidence("threads missing on average", round(mean, 2), "table workers"),
        Evidence("workers that left by request", len(left), "table workers, events remove-worker"),
        confidence=0.9,
        severity=severity_of_loss(observation, share) if left else severity_of(share),
    )


def _away(observation: Observation) -> Floats:
    """Threads over the timeline that were asked for and are absent, but whose worker neither died nor comes later."""
    line, members = timeline(observation), observation.measured.members
    addresses = observation.measured.addresses
    dead = {death.worker for death in deaths(observation)}
    died = np.array([addresses[worker] in dead for worker in members.worker.tolist()], dtype=bool)
    joined = np.repeat(members.joined, members.nthreads)
    to_come = line.level(np.zeros(len(joined)), joined)
    gone = np.repeat(members.left[died], members.nthreads[died])
    forever = np.full(len(gone), observation.measured.makespan)
    return np.maximum(observation.threads - line.capacity - to_come - line.level(gone, forever), 0.0)


def _never_complete(observation: Observation, message: str) -> Finding:
    what, said = message.strip() or "the workers did not arrive", told(message)
    cause = f": {said['cause']}" if said.get("cause") else ""
    return WORKERS_MISSING.finding(
        observation,
        0.0,
        f"The cluster did not get the workers asked for: {words.first_line(what)}{cause}.",
        said.get("next", "read the driver's log and the logs of the platform, then run the same sweep again"),
        Evidence("workers asked for", observation.trial.point.workers, "the point"),
        Evidence("what the cluster said", words.first_line(what), said.get("where", "driver")),
        confidence=0.95,
        severity=Severity.HIGH,
    )
