"""Tasks that submit tasks."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Bools, Floats
from scalescope.analysis.measure import peak
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import NO_THREAD, RESULTS
from scalescope.model.words import percent, plural

BEAM_TASK = "apply_dofn_to_bundle"  # prefix of the tasks of a ParDo of Beam's Dask runner
BEAM_SIDE_INPUTS = (
    "Beam's Dask runner computes a side input within the task that reads it: combine with "
    "`CombineGlobally(...).without_defaults()`, which needs none, and pass small values as arguments"
)
CLOSE_S = 0.05  # seconds from sending a graph within a task until its tasks are runnable

NESTED_CLIENT = TrialCause(
    code="nested-client",
    title="Tasks that submit tasks",
    needs="Tasks sent graphs of their own, and at least 10 % of the worker time passed while these tasks held "
    "threads, while they sent graph after graph and threads were idle, or while bundles of Beam computed a side "
    "input again. Or nothing moved when the trial was stopped: tasks that waited for results held all threads of a "
    "worker, and other tasks lacked a thread.",
    ruled_out_by="Tasks gave up their threads (`worker_client()`) and kept all threads busy with what they sent. "
    "Tasks ended before what they had sent, so they did not wait for it.",
    remedy="Submit from the client and pass futures as arguments, or use `with worker_client()`",
    link="https://distributed.dask.org/en/stable/task-launch.html",
    parts=("busy", "no_runnable_task", "tail"),
    changes=(Term.WORK, Term.SPAN),
    without_attempts=True,
)


@NESTED_CLIENT.finds
def nested_client(observation: Observation) -> Finding | None:
    """`lost_s`: threads held by waiting parents, or idle while these send in turn, and repeated side inputs."""
    if deadlock := _deadlock(observation):
        return deadlock
    sent = submissions(observation)
    if observation.attempts is None or not len(sent.nested_at):
        return None
    attempts, line = observation.attempts, timeline(observation)
    parents = _parents(observation, sent.nested_at)
    if not parents.any() or not _outlive(observation, parents, sent.nested_at):
        return None
    first = sent.nested_at[np.searchsorted(sent.nested_at, attempts.start[parents])]
    waiting_parents = line.level(first, attempts.stop[parents])
    seceded = _seceded(observation, parents)
    blocked_s = 0.0 if seceded else line.integral(waiting_parents)
    in_turn = len(sent.nested_at) > int(parents.sum())
    idle_s = line.integral(np.where(waiting_parents > 0, line.unwanted, 0.0)) if in_turn else 0.0
    again_s = _side_inputs_s(observation, parents, sent.nested_at)
    lost_s = blocked_s + idle_s + again_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    names, place = task_prefixes(observation)
    prefix, count = names[int(place[parents][0])], int(parents.sum())
    their, threads, they = ("its", "thread", "it") if count == 1 else ("their", "threads", "they")
    how = f"gave up {their} {threads}, but" if seceded else f"held {their} {threads} while {they} waited, having"
    wrap = "" if seceded else "; or let it give up its thread with `with worker_client() as client:`"
    remedy = (
        f"let the client send what `{prefix}` sends: pass futures on as arguments instead of calling `get_client()` in "
        f"the task{wrap}"
    )
    if prefix == BEAM_TASK or again_s:
        remedy = BEAM_SIDE_INPUTS
    return NESTED_CLIENT.finding(
        observation,
        lost_s,
        f"{plural(count, 'task')} `{prefix}` {how} sent {plural(len(sent.nested_at), 'graph')} of {their} own with "
        f"{plural(sent.nested_tasks, 'task')}, which costs {percent(share)} of the worker time.",
        remedy,
        Evidence("graphs sent from within tasks", len(sent.nested_at), "table graphs"),
        Evidence("tasks in them", sent.nested_tasks, "table graphs"),
        Evidence("tasks that sent them", count, f"table tasks, prefix {prefix}"),
        Evidence("thread-seconds held while waiting", round(blocked_s, 3), "tables graphs and tasks"),
        Evidence("thread-seconds idle meanwhile, no task waiting", round(idle_s, 3), "tasks and worker time"),
        *([Evidence("thread-seconds of side inputs computed again", round(again_s, 3), "table tasks")] * bool(again_s)),
        confidence=0.8,
    )


def _side_inputs_s(observation: Observation, parents: Bools, nested_at: Floats) -> float:
    attempts = observation.measured
    near = np.searchsorted(nested_at, attempts.runnable + CLOSE_S) > np.searchsorted(
        nested_at, attempts.runnable - CLOSE_S
    )
    sent = near & ~parents & attempts.useful & (np.asarray(attempts.prefix) == BEAM_TASK)
    return float((attempts.stop - attempts.start)[sent].sum()) * (1 - 1 / len(nested_at))


def _parents(observation: Observation, nested_at: Floats) -> Bools:
    """Tasks that can have sent the nested graphs: those of the prefix that ran at most of these moments."""
    attempts = observation.measured
    _, place = task_prefixes(observation)
    held = np.searchsorted(nested_at, attempts.stop) > np.searchsorted(nested_at, attempts.start)
    best, most = np.zeros(len(held), dtype=bool), (0.0, 0.0)
    for prefix in np.unique(place[held]):
        chosen = held & (place == prefix)
        begun = np.searchsorted(np.sort(attempts.start[chosen]), nested_at, side="right")
        ended = np.searchsorted(np.sort(attempts.stop[chosen]), nested_at, side="right")
        # If several were always running, the one with longer tasks sent the other.
        score = (float((begun > ended).mean()), float((attempts.stop - attempts.start)[chosen].mean()))
        if score > most:
            best, most = chosen, score
    return best


def _outlive(observation: Observation, parents: Bools, nested_at: Floats) -> bool:
    """Whether parents mostly stayed until what they had sent was done: those that end sooner did not wait."""
    attempts = observation.measured
    runnable, stop = attempts.runnable[~parents], attempts.stop[~parents]
    order = np.argsort(runnable)
    first = np.searchsorted(runnable[order], nested_at - CLOSE_S)
    last = np.searchsorted(runnable[order], nested_at + CLOSE_S)
    sent = first < last
    if not sent.any():
        return True
    ends = np.array([stop[order[i:j]].max() for i, j in zip(first[sent], last[sent], strict=True)])
    begun = np.argsort(attempts.start[parents])
    until = np.maximum.accumulate(attempts.stop[parents][begun])
    among = np.searchsorted(attempts.start[parents][begun], nested_at[sent], side="right")
    outlived = until[np.maximum(among - 1, 0)] >= ends
    return bool(outlived.mean() >= 0.5)


def _seceded(observation: Observation, parents: Bools) -> bool:
    attempts = observation.measured
    threads = np.zeros(len(attempts.addresses), np.int64)
    np.add.at(threads, attempts.members.worker, attempts.members.nthreads)
    workers = np.unique(attempts.worker[parents])
    order = np.argsort(attempts.worker, kind="stable")
    bounds = np.searchsorted(attempts.worker[order], [workers, workers + 1])
    more = [
        peak(attempts.start[order[begin:end]], attempts.stop[order[begin:end]]) > threads[worker]
        for worker, begin, end in zip(workers.tolist(), *bounds.tolist(), strict=True)
    ]
    return bool(sum(more) > len(more) / 2)


def _deadlock(observation: Observation) -> Finding | None:
    """Tasks that wait for results hold all threads of a worker, while other tasks lack a thread."""
    found = observation.standstill
    if found is None:
        return None
    stuck = [each for each in found.holding if each.stuck]
    waiting = [each for each in stuck if each.waits_for in RESULTS]
    starved = sum(each.stuck for each in found.groups if each.problem == NO_THREAD)
    if sum(each.stuck for each in stuck) >= found.threads:
        starved = found.ready
    if not waiting or not starved:
        return None
    worst, tasks = waiting[0], sum(each.stuck for each in waiting)
    return NESTED_CLIENT.finding(
        observation,
        observation.threads * observation.trial.real_s,
        f"Nothing moved any more: {plural(tasks, 'task')} (`{worst.prefix}`) held {tasks:,} of "
        f"{plural(found.threads, 'thread')} and waited for results in `{worst.call}` at {worst.where}, while "
        f"{plural(starved, 'task')} lacked a thread.",
        f"let `{worst.prefix}` give up its thread while it waits (`with worker_client() as client:`, `secede()`), or "
        "let the client send what it sends and pass futures on as arguments",
        Evidence("threads held by tasks that wait for results", tasks, "facts standstill"),
        Evidence("tasks that only lack a thread", starved, "facts standstill"),
        Evidence("tasks that had not ended", found.left, "facts standstill"),
        confidence=0.95,
        severity=Severity.HIGH,
    )
