"""Tasks wait although threads are idle: late workers, or data that pins tasks to few workers."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Premise
from scalescope.diagnosis.evidence.placement import SCATTERED, TasksNearData, late_workers_of, tasks_near_data
from scalescope.diagnosis.evidence.rescheduled import placed_anywhere_saves_s
from scalescope.diagnosis.evidence.submissions import BANDWIDTH
from scalescope.diagnosis.evidence.task_table import most_common_prefix, short_key, task_column, task_needs
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

LATE_WORKERS = TrialCause(
    code="late-workers",
    title="Workers joined after the work began",
    needs="Workers joined after the first task reached the scheduler. Tasks waited for a thread before these workers "
    "came, or waited on other workers while the new ones were idle.",
    ruled_out_by="Workers that replaced others (worker-died). Too few tasks to use the late workers. Restricted tasks, "
    "which may not move (worker-restriction).",
    remedy="Call `client.wait_for_workers(n)` before the first task is sent",
    link="https://github.com/dask/distributed/issues/5599",
    parts=("late_start", "not_assigned"),
    premise="Tasks waited on other workers until the late ones had joined.",
)


@LATE_WORKERS.finds
def late_workers(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds missing before late workers came, or idle on them, while tasks waited."""
    late, attempts = late_workers_of(observation), observation.measured
    lost_s = late.missing_s + late.idle_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    joined = attempts.members.joined[late.members]
    names = [attempts.addresses[worker] for worker in attempts.members.worker[late.members]]
    unused = len(set(attempts.members.worker[late.members].tolist()) - set(attempts.worker.tolist()))
    little = f" ({unused:,} of them never got a task)" if unused else ""
    return LATE_WORKERS.finding(
        observation,
        lost_s,
        f"{plural(len(names), 'worker')} joined up to {words.duration(float(joined.max()))} after the first task "
        f"reached the scheduler{little}, while tasks waited on the others: {percent(share)} of the worker time was "
        "lost as a result.",
        Remedy(
            f"call `client.wait_for_workers({observation.trial.point.workers})` before the first task is sent"
            + (", and leave `distributed.scheduler.work-stealing` on" if late.idle_s > late.missing_s else ""),
            saved_s=placed_anywhere_saves_s(observation),
            premise=_worth_waiting(float(joined.max())),
            otherwise=Remedy(
                f"start {plural(len(names), 'worker')} before the script: waiting for them inside the script costs "
                "more than it saves",
                saved_s=placed_anywhere_saves_s(observation),
            ),
        ),
        Evidence("workers that joined late", len(names), f"table workers: {words.some(names)}"),
        Evidence("seconds until the last late worker joined", round(float(joined.max()), 3), "table workers"),
        Evidence("thread-seconds missing until late workers joined", round(late.missing_s, 3), "tables workers, tasks"),
        Evidence("thread-seconds idle on late workers, tasks waiting", round(late.idle_s, 3), "tables workers, tasks"),
        confidence=0.9,
    )


def _worth_waiting(until_s: float) -> Premise[Observation]:
    """Premise that all work ends sooner if tasks are sent only after `until_s` seconds."""
    return Premise(
        "Waiting for the workers takes less time than doing without them.",
        lambda trial: until_s + trial.seconds("busy") / trial.threads < trial.measured.makespan,
    )


DATA_LOCALITY = TrialCause(
    code="data-locality",
    title="Work stays where its data is",
    needs="Tasks that may run anywhere waited behind others on the workers that hold their inputs (if inputs were not "
    "recorded: on at most a quarter of the workers), while threads of workers that had joined before were idle.",
    ruled_out_by="Restricted tasks (worker-restriction). Idle workers that joined while tasks were waiting "
    "(late-workers). Idle threads on the same workers (tiny-tasks).",
    remedy="Divide or replicate the input, or tell Dask how long the tasks take, so that Dask moves them",
    link="https://github.com/dask/distributed/issues/6573",
    parts=("not_assigned",),
    workers_unused=True,
    premise="Threads were idle elsewhere while these tasks waited, and no restriction bound them.",
)


@DATA_LOCALITY.finds
def data_locality(observation: Observation) -> Finding | None:
    """`lost_s`: integral over time of the smaller number: tasks waiting near their data, or threads idle elsewhere."""
    local, attempts = tasks_near_data(observation), observation.measured
    if (share := observation.share_of(local.lost_s)) < NOTEWORTHY:
        return None
    prefix = most_common_prefix(observation, local.tasks)
    where = words.some([attempts.addresses[worker] for worker in local.workers])
    holds, remedy = _inputs(observation, local, prefix)
    return DATA_LOCALITY.finding(
        observation,
        local.lost_s,
        f"{plural(len(local.tasks), 'task')} (`{prefix}`) that may run anywhere waited on {len(local.workers):,} of "
        f"{plural(len(attempts.addresses), 'worker')} ({where}), {holds}, while other threads were idle for "
        f"{percent(share)} of the worker time.",
        Remedy(remedy, saved_s=placed_anywhere_saves_s(observation)),
        Evidence("tasks that waited near their data", len(local.tasks), f"table tasks, prefix {prefix}"),
        Evidence("workers on which tasks waited", len(local.workers), f"of {len(attempts.addresses):,}, table tasks"),
        Evidence("inputs", "on the same workers" if local.recorded else "not recorded", "tables dependencies, events"),
        Evidence("thread-seconds idle elsewhere, tasks waiting", round(local.lost_s, 3), "tasks and worker time"),
        confidence=0.9 if local.recorded else 0.6,
    )


def _inputs(observation: Observation, local: TasksNearData, prefix: str) -> tuple[str, str]:
    durations = (
        f", or tell Dask that the tasks are long (`distributed.scheduler.default-task-durations: {{{prefix}: 1m}}`)"
    )
    if dear := _dear_to_move(observation, local):
        durations = ""
    if local.source >= 0:
        name = short_key(observation, local.source)
        nbytes = words.size(task_column(observation, "nbytes")[local.source])
        made_by = observation.measured.prefix[local.source]
        return (
            f"which hold their input `{name}` ({nbytes})",
            f"copy the result of `{made_by}` to all workers first (`client.replicate`), or split it over several tasks"
            + (f"{durations}, so that work stealing moves them" if durations else ""),
        )
    if local.recorded and local.source != SCATTERED:
        spread = (
            "make more and smaller inputs, so that more workers hold some: moving the present ones takes longer than "
            "the tasks"
        )
        return (
            "which hold their inputs",
            spread if dear else f"spread the inputs first (`client.rebalance(futures)`){durations}",
        )
    held = "the data scattered for them" if local.recorded else "their inputs, scattered or computed before the trial"
    return (
        f"which {'' if local.recorded else 'probably '}hold {held}",
        f"scatter inputs to all workers (`client.scatter(data, broadcast=True)`){durations}",
    )


def _dear_to_move(observation: Observation, local: TasksNearData) -> bool:
    """Whether Dask expects moving a task's inputs to another worker to take longer than the task."""
    used, made = task_needs(observation)
    chosen = np.isin(used, local.tasks)
    nbytes = float(task_column(observation, "nbytes")[made[chosen]].sum()) / max(len(local.tasks), 1)
    attempts = observation.measured
    return nbytes / BANDWIDTH > float((attempts.stop - attempts.start)[local.tasks].mean())
