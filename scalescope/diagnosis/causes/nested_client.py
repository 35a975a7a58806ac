"""Tasks that submit tasks."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.events import task_waits
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.submissions import Nested, nested, submissions
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding
from scalescope.model.standstill import NO_THREAD, RESULTS
from scalescope.model.words import percent, plural

BEAM_TASK = "apply_dofn_to_bundle"  # prefix of the tasks of a ParDo of Beam's Dask runner
BEAM_SIDE_INPUTS = (
    "Beam's Dask runner computes a side input within the task that reads it: combine with "
    "`CombineGlobally(...).without_defaults()`, which needs no side input, and pass small values as arguments"
)

NESTED_CLIENT = TrialCause(
    code="nested-client",
    title="Tasks that submit tasks",
    needs="Tasks sent graphs of their own, and at least 10 % of the worker time passed while these tasks held "
    "threads, while they sent graph after graph and threads were idle, or while bundles of Beam computed a side "
    "input again. Or nothing moved when the trial was stopped: tasks that waited for results held all threads of a "
    "worker, and other tasks lacked a thread.",
    ruled_out_by="Tasks gave up their threads (`worker_client()`), and the tasks that they sent kept all threads busy. "
    "Tasks that ended before the tasks that they had sent did not wait for these.",
    remedy="Submit from the client and pass futures as arguments, or use `with worker_client()`",
    link="https://distributed.dask.org/en/stable/task-launch.html",
    parts=("busy", "no_runnable_task", "tail"),
    changes=(Term.WORK, Term.SPAN),
    without_attempts=True,
    premise="Tasks sent tasks and waited for them, as their graphs show.",
)


@NESTED_CLIENT.finds
def nested_client(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of tasks waiting for tasks they sent, idle meanwhile, or of repeated side inputs."""
    if deadlock := _deadlock(observation):
        return deadlock
    sent = submissions(observation)
    if observation.attempts is None or not sent.nested_graphs:
        return None
    attempts, line, inside = observation.attempts, timeline(observation), nested(observation)
    waits, row = task_waits(observation.tables), attempts.row.tolist()
    # a task that polls (`future.done()`) is not seen to wait, but ends after the tasks that it sent
    polls = np.isfinite(inside.until) & (inside.until <= attempts.stop)
    parents = np.flatnonzero((inside.graphs > 0) & (np.isin(row, list(waits)) | polls))
    if not len(parents):
        return None
    polled_s = (inside.until - inside.since)[parents].tolist()
    held_s = [
        sum(end - begin for begin, end, held in waits[row[i]] if held) if row[i] in waits else seconds
        for i, seconds in zip(parents.tolist(), polled_s, strict=True)
    ]
    blocked_s, graphs = sum(held_s), int(inside.graphs[parents].sum())
    seceded = 2 * np.count_nonzero(held_s) < len(held_s)
    waiting = line.level(np.maximum(inside.since, attempts.start)[parents], attempts.stop[parents])
    idle_s = line.integral(np.where(waiting > 0, line.unwanted, 0.0)) if graphs > len(parents) else 0.0
    again_s = _side_inputs_s(attempts, inside)
    lost_s = blocked_s + idle_s + again_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    names, place = task_prefixes(observation)
    prefix, count = names[int(np.bincount(place[parents]).argmax())], len(parents)
    their, threads, they = ("its", "thread", "it") if count == 1 else ("their", "threads", "they")
    how = f"gave up {their} {threads}, but " if seceded else ""
    held = "" if seceded else f", and held {their} {threads} while {they} waited for these"
    wrap = "" if seceded else "; or let the task give up its thread with `with worker_client() as client:`"
    remedy = (
        f"let the client send the tasks that `{prefix}` sends: pass futures as arguments instead of calling "
        f"`get_client()` in the task{wrap}"
    )
    if prefix == BEAM_TASK or again_s:
        remedy = BEAM_SIDE_INPUTS
    return NESTED_CLIENT.finding(
        observation,
        lost_s,
        f"{plural(count, 'task')} `{prefix}` {how}sent {plural(sent.nested_graphs, 'graph')} of {their} own with "
        f"{plural(sent.nested_tasks, 'task')}{held}: this costs {percent(share)} of the worker time.",
        remedy,
        Evidence("graphs sent from within tasks", sent.nested_graphs, "table graphs"),
        Evidence("tasks in graphs sent from within tasks", sent.nested_tasks, "table graphs"),
        Evidence("tasks that sent graphs", count, f"table tasks, prefix {prefix}"),
        Evidence("thread-seconds held while waiting", round(blocked_s, 3), "tables events, graphs and tasks"),
        Evidence("thread-seconds idle while tasks sent graphs", round(idle_s, 3), "tasks and worker time"),
        *([Evidence("thread-seconds of side inputs computed again", round(again_s, 3), "table tasks")] * bool(again_s)),
        confidence=0.8,
    )


def _side_inputs_s(attempts: Attempts, inside: Nested) -> float:
    sent = inside.sent & attempts.useful & (np.asarray(attempts.prefix) == BEAM_TASK)
    return float((attempts.stop - attempts.start)[sent].sum()) * (1 - 1 / int(inside.graphs.sum()))


def _deadlock(observation: Observation) -> Finding | None:
    """Tasks that wait for results hold all threads of a worker, while the awaited tasks lack a thread."""
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
    return NESTED_CLIENT.standing(
        observation,
        f"{plural(tasks, 'task')} (`{worst.prefix}`) held {tasks:,} of {plural(found.threads, 'thread')} and waited "
        f"for results in `{worst.call}` at {worst.where}, while {plural(starved, 'task')} lacked a thread.",
        f"let `{worst.prefix}` give up its thread while it waits (`with worker_client() as client:`, `secede()`), or "
        "let the client send those tasks and pass their futures as arguments",
        Evidence("threads held by tasks that wait for results", tasks, "facts standstill"),
        Evidence("tasks that only lack a thread", starved, "facts standstill"),
        confidence=0.95,
    )
