"""Tasks of a stage differ: a few are long, or their durations are spread widely."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis.cause import NOTEWORTHY, Premise, Term
from scalescope.diagnosis.evidence.client_time import held_back_at
from scalescope.diagnosis.evidence.delayed_batches import LARGE_RESULT, DelayedBatch, delayed_batches
from scalescope.diagnosis.evidence.rescheduled import sent_at_once_saves_s
from scalescope.diagnosis.evidence.task_batches import are_first, task_batches
from scalescope.diagnosis.evidence.task_table import short_key, task_column, task_needs
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.premises import ENOUGH, RESULTS_FIT
from scalescope.model import words
from scalescope.model.finding import ALL_ROUNDS, Evidence, Finding
from scalescope.model.words import percent, plural

FIRST = (
    "move what each worker does only once (imports, connections, loading a model) before the tasks: "
    "`distributed.worker.preload`, or a worker plugin; if the first tasks just have more to do, divide them"
)

MOSTLY = 0.5  # least share of the lost time saved by sending tasks at once, for the client's wait to be the reason
LONGEST_FIRST = "start the longest tasks first: `priority=`, or put them at the head of the list"
NEARLY = 0.8  # least share of the gain of equal tasks that a better order reaches, for the order to be the remedy
ROUNDS = 3  # fewest graphs that count as rounds of the client

STRAGGLER = TrialCause(
    code="straggler",
    title="A few tasks hold up the others",
    needs="At least 3 tasks of a group were in flight together, and at most 5 % of them (or two) took more than 3 "
    "times the median. Threads that had been busy were idle until these long tasks ended. If tasks waited meanwhile, "
    "they were queued behind others on their workers.",
    ruled_out_by="Tasks of equal length whose number is no multiple of the threads (uneven-waves). Many different "
    "durations, or larger results for the long ones (skewed-tasks). A worker that is slow at everything "
    "(slow-worker). Tasks that wait for their own tasks (nested-client). Other work that fills the threads.",
    remedy="Split the long task, or start it first with `priority=`",
    link="https://distributed.dask.org/en/stable/priority.html",
    parts=("no_runnable_task", "tail", "not_assigned"),
    by_times=True,
    changes=(Term.SPAN,),
    rules_out=("sequential-graph",),
    premise="All durations are recorded; they tell whether it is enough to start the long task first.",
)


@STRAGGLER.finds
def straggler(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle after the stage would have ended, had its stragglers taken the median duration."""
    held = delayed_batches(observation)[0]
    lost_s = sum(each.lost_s for each in held)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    attempts = observation.measured
    worst = max(held, key=lambda each: each.lost_s)
    tasks, longest = len(task_batches(observation).tasks(worst.batch)), int(worst.tasks[-1])
    prefix, worker = attempts.prefix[longest], attempts.addresses[int(attempts.worker[longest])]
    took = float(attempts.stop[longest] - attempts.start[longest])
    median = float(task_batches(observation).median[worst.batch])
    first = are_first(observation, task_batches(observation).tasks(worst.batch))
    without_wait = None if first else _without_wait(observation, lost_s)
    others = f" ({len(worst.tasks) - 1:,} more like it)" if len(worst.tasks) > 1 else ""
    began = float(attempts.start[task_batches(observation).tasks(worst.batch)].min())
    hidden = began + took <= worst.end_s
    saved_s = float(attempts.stop[longest]) - max(began + took, worst.end_s)
    early = attempts.start[longest] > began and saved_s >= MOSTLY * lost_s / observation.threads
    act = (
        "start it first (`priority=1` in `client.submit`, or put the task at the head of the list)"
        + (", and split its work if it can be divided" if not hidden else "")
        if early
        else "split the work of that task"
    )
    return STRAGGLER.finding(
        observation,
        lost_s,
        f"{plural(len(worst.tasks), 'task')} of {tasks:,} `{prefix}` held up the others: "
        f"`{short_key(observation, longest)}` took {words.duration(took)}{others}, the median is "
        f"{words.duration(median)}, and threads spent {percent(share)} of the worker time waiting.{_said(first)}",
        Remedy(FIRST, saved_s=0.0)
        if first
        else without_wait
        or Remedy(
            f"{act}; if the task is fast when run alone, look at its worker {worker} instead",
            saved_s=saved_s if early and not hidden else None,
            changes=() if early else None,
        ),
        Evidence("longest task of the stage, s", round(took, 4), f"table tasks, {short_key(observation, longest)}"),
        Evidence("median of the stage, s", round(median, 4), f"table tasks, prefix {prefix}"),
        Evidence("tasks of more than 3 times the median", len(worst.tasks), f"of {tasks:,} in flight together"),
        Evidence("most tasks of the stage at once", worst.wide, "table tasks"),
        Evidence("thread-seconds idle after all other tasks had ended", round(lost_s, 3), "tasks and worker time"),
        *_all_rounds(observation, prefix),
        confidence=0.9,
        place=held_back_at(observation) if without_wait else None,
    )


SKEWED_TASKS = TrialCause(
    code="skewed-tasks",
    title="Tasks of one stage differ widely",
    needs="At least 3 tasks were in flight together. The slowest tenth took at least twice as long as the fastest "
    "tenth, or more than 5 % took over 3 times the median, or the few that took so long had larger results. Threads "
    "waited at the end of the stage longer than they would for equal tasks.",
    ruled_out_by="A handful of long tasks among equal ones (straggler). Equal tasks whose number is no multiple of the "
    "threads (uneven-waves). So many tasks per thread that the threads end together anyway.",
    remedy="Cut the input into more parts of equal work, the longest first",
    link="https://docs.dask.org/en/stable/dataframe-best-practices.html",
    parts=("no_runnable_task", "tail", "not_assigned"),
    by_times=True,
    changes=(Term.SPAN,),
    rules_out=("sequential-graph",),
    premise="All durations are recorded, and threads waited for the longest.",
)


@SKEWED_TASKS.finds
def skewed_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle at the end of uneven stages, without those of the last wave of equal tasks."""
    held = delayed_batches(observation)[1]
    lost_s = sum(each.lost_s for each in held)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    attempts = observation.measured
    worst = max(held, key=lambda each: each.lost_s)
    durations = (attempts.stop - attempts.start)[worst.tasks]
    low, middle, high = (float(np.quantile(durations, at)) for at in (0.1, 0.5, 0.9))
    prefix = attempts.prefix[int(worst.tasks[-1])]
    nbytes = task_column(observation, "nbytes")[worst.tasks]
    by_size = _correlated(nbytes, durations) and float(np.median(nbytes)) >= LARGE_RESULT
    first = are_first(observation, worst.tasks)
    without_wait = None if first else _without_wait(observation, lost_s)
    sizes = (
        f"; long tasks have large results ({words.size(nbytes.min())} to {words.size(nbytes.max())})" if by_size else ""
    )
    divide, wanted = "repartition by size" if by_size else "divide the work into equal parts", 4 * worst.wide
    saved_s = (lost_s + sum(each.last_wave_s for each in held)) / observation.threads
    longest = f"{words.duration(float(durations[-1]))} for `{short_key(observation, int(worst.tasks[-1]))}`"
    order_s = _longest_first_saves_s(observation, worst)
    return SKEWED_TASKS.finding(
        observation,
        lost_s,
        f"The durations of {len(durations):,} `{prefix}` tasks differ widely: 80 % take {words.duration(low)} to "
        f"{words.duration(high)}, the longest {longest}{sizes}. {percent(share)} of the worker time was spent waiting "
        f"for the last of them.{_said(first)}",
        Remedy(FIRST, saved_s=0.0)
        if first
        else without_wait
        or (Remedy(LONGEST_FIRST, saved_s=order_s) if order_s >= NEARLY * saved_s and not by_size else None)
        or Remedy(
            f"{divide}, and make more tasks: at least {wanted:,} `{prefix}` tasks for {plural(worst.wide, 'thread')}, "
            "the longest first (`priority=`)",
            saved_s=saved_s,
            premise=Premise("There are fewer tasks now.", lambda _: wanted >= ENOUGH * len(durations)),
            otherwise=Remedy(f"{divide}, the longest first (`priority=`)", saved_s=saved_s),
        ),
        Evidence("fastest tenth of the tasks, at most, s", round(low, 4), f"table tasks, prefix {prefix}"),
        Evidence("median duration, s", round(middle, 4), f"table tasks, prefix {prefix}"),
        Evidence("slowest tenth of the tasks, at least, s", round(high, 4), f"table tasks, prefix {prefix}"),
        Evidence("tasks", len(durations), "in flight together"),
        Evidence("thread-seconds idle at the end of uneven stages", round(lost_s, 3), "tasks and worker time"),
        *_all_rounds(observation, prefix),
        confidence=0.9,
        place=held_back_at(observation) if without_wait else None,
    )


def _longest_first_saves_s(observation: Observation, held: DelayedBatch) -> float:
    """Seconds by which the last of the batch's long tasks would end earlier if the longest began first."""
    attempts, tasks = observation.measured, held.tasks
    durations = (attempts.stop - attempts.start)[tasks]
    stage_s = max(float(durations[-1]), float(durations.sum()) / held.wide)
    return float(attempts.stop[tasks[-1]] - attempts.start[tasks].min()) - stage_s


def _without_wait(observation: Observation, lost_s: float) -> Remedy | None:
    """The remedy where the client waited for the stage before it sent tasks that could have begun earlier."""
    saved_s, place, sent = sent_at_once_saves_s(observation), held_back_at(observation), observation.measured.graph
    if saved_s is None or saved_s < MOSTLY * lost_s / observation.threads:
        return None
    here, there = task_needs(observation)
    takes = bool((sent[here] != sent[there]).any())  # else later tasks may need what earlier ones wrote
    if place is not None and takes:
        text = (
            f"remove the wait at {place.file}:{place.line}: pass the futures to the next tasks; each then begins when "
            "its own inputs are ready"
        )
    elif place is not None and not takes and len(np.unique(sent)) >= ROUNDS:
        text = (
            f"do not wait for all tasks of a round at {place.file}:{place.line}: if no round needs the results of the "
            "previous one, take each task as it ends (`as_completed`, or `wait` with `return_when='FIRST_COMPLETED'`), "
            "and send the next"
        )
    elif place is None and not takes and len(np.unique(sent)) >= ROUNDS:
        text = (
            "if no round needs the results of the previous one, send the tasks of all rounds at once and take each "
            "result as it comes (`as_completed`); else divide the longest task"
        )
    else:
        return None
    return Remedy(text, saved_s=saved_s, premise=RESULTS_FIT)


def _all_rounds(observation: Observation, prefix: str) -> tuple[Evidence, ...]:
    attempts = observation.measured
    tasks = int((np.asarray(attempts.prefix) == prefix).sum())
    rounds = len(np.unique(attempts.graph)) >= ROUNDS
    return (Evidence(ALL_ROUNDS, tasks, f"table tasks, prefix {prefix}"),) if rounds else ()


def _said(first: bool) -> str:
    return " The long tasks are the first on their workers." if first else ""


def _correlated(first: Floats, second: Floats) -> bool:
    if first.std() == 0 or second.std() == 0:
        return False
    return bool(np.corrcoef(first, second)[0, 1] > 0.7)
