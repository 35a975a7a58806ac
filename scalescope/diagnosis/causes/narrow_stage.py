"""One stage has fewer tasks than threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints, codes
from scalescope.diagnosis.cause import NOTEWORTHY, WITHOUT_TASKS, Term
from scalescope.diagnosis.evidence.submission_loop import loop
from scalescope.diagnosis.evidence.submissions import nested
from scalescope.diagnosis.evidence.task_batches import task_batches
from scalescope.diagnosis.evidence.task_table import task_needs, task_prefixes
from scalescope.diagnosis.evidence.timeline import occupied_from, timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

WIDER = 2  # least ratio of the widest stage's tasks (at most the threads) to those of a stage that counts as narrow
FAN_IN = 8  # most results that a task of a tree combines, as in Dask's own trees (`split_every`)
WIDE = 0.5  # most tasks of the widest stage per thread, for the whole graph to count as narrow

NARROW_STAGE = TrialCause(
    code="narrow-stage",
    title="One stage has too few tasks",
    needs="A stage had fewer tasks than threads, and idle threads during it cost at least 10 % of the worker time. "
    "Another stage had at least twice as many tasks, and more than half as many as there are threads.",
    ruled_out_by="All stages are as narrow (too-few-partitions). The tasks of the stage need up to 8 tasks of the same "
    "stage (sequential-graph, or a tree), or were sent one by one (results-awaited-in-loop, slow-submission). One of "
    "many tasks was long (straggler). The tasks wait for tasks that they sent (nested-client).",
    remedy="Cut that stage into more tasks (repartition before it, `split_every=` in reductions), or let other work "
    "run meanwhile",
    link="https://docs.dask.org/en/stable/best-practices.html#break-up-computations-into-many-pieces",
    parts=WITHOUT_TASKS,
    changes=(Term.SPAN,),
    rules_out=("sequential-graph",),
    premise="Threads were idle while the stage ran, and had nothing else to do.",
)


@dataclass(frozen=True)
class _NarrowStage:
    prefix: str  # prefix of the stage's tasks
    tasks: int  # tasks of the stage's largest batch
    batches: int  # number of batches of the stage
    blamed_s: float  # thread-seconds without a task that a wider stage would have used
    ran_s: float  # seconds in which any batch of the stage ran


@NARROW_STAGE.finds
def narrow_stage(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds without a task that the narrow stages would have used with a task for each thread."""
    if not observation.noteworthy(*WITHOUT_TASKS):
        return None
    found = _narrow(observation)
    lost_s = sum(each.blamed_s for each in found)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worst = max(found, key=lambda each: each.blamed_s)
    wide, widest = _widest(observation)
    threads = observation.threads
    times = f" in each of {worst.batches:,} rounds" if worst.batches > 1 else ""
    act = (
        "cut its work into parts, and combine their results in a tree (`split_every=`), or let other work run meanwhile"
        if worst.tasks == 1
        else f"cut its work into at least {threads:,} tasks (`repartition`, `rechunk` or more items before it)"
    )
    more = f", the worst of {plural(len(found), 'such stage')}" if len(found) > 1 else ""
    return NARROW_STAGE.finding(
        observation,
        lost_s,
        f"`{worst.prefix}` has {plural(worst.tasks, 'task')}{times} for {plural(threads, 'thread')}, and `{wide}` has "
        f"{widest:,}: threads without a task cost {percent(observation.share_of(worst.blamed_s))} of the worker time "
        f"while the narrow stage ran{more}.",
        f"look at `{worst.prefix}`: {act}",
        Evidence("tasks of the narrow stage", worst.tasks, f"table tasks, prefix {worst.prefix}"),
        Evidence("tasks of the widest stage", widest, f"table tasks, prefix {wide}"),
        Evidence("seconds in which the narrow stage ran", round(worst.ran_s, 3), f"table tasks, prefix {worst.prefix}"),
        Evidence("share of the worker time lost to narrow stages", round(share, 3), "tasks and worker time"),
        confidence=0.8,
    )


def _narrow(observation: Observation) -> list[_NarrowStage]:
    attempts, found = observation.measured, task_batches(observation)
    size = found.size
    _, widest = _widest(observation)
    threads = observation.threads
    if widest <= WIDE * threads:
        return []
    few = (size < threads) & (min(widest, threads) >= WIDER * size) & ~_excused(observation)
    chosen = few[found.batch]
    tasks, size_of_task = found.task[chosen], size[found.batch[chosen]]
    names, prefix = task_prefixes(observation)
    blamed = np.bincount(prefix[tasks], weights=_blamed_s(observation, tasks, size_of_task), minlength=len(names))
    begins = found.first[:-1]
    ran = np.maximum.reduceat(attempts.stop[found.task], begins) - np.minimum.reduceat(
        attempts.start[found.task], begins
    )
    of_batch = prefix[found.task[begins]]
    return [
        _NarrowStage(names[each], int(size[own].max()), int(own.sum()), float(blamed[each]), float(ran[own].sum()))
        for each in np.unique(of_batch[few]).tolist()
        for own in (few & (of_batch == each),)
    ]


def _blamed_s(observation: Observation, tasks: Ints, sizes: Ints) -> Floats:
    """Idle thread-seconds charged to each attempt: those that a stage with a task for every thread would have used."""
    line, stop = timeline(observation), observation.measured.stop
    begin, busy = occupied_from(observation), np.maximum(line.occupied, 1.0)
    blamed = np.zeros(len(tasks))
    for size in np.unique(sizes).tolist():
        own = sizes == size
        rate = np.minimum(line.unwanted, np.maximum(line.capacity - size, 0.0)) / busy
        blamed[own] = line.between(rate, begin[tasks[own]], stop[tasks[own]])
    return blamed


def _widest(observation: Observation) -> tuple[str, int]:
    found = task_batches(observation)
    batch = int(found.size.argmax())
    return observation.measured.prefix[int(found.tasks(batch)[0])], int(found.size[batch])


def _excused(observation: Observation) -> Bools:
    """Batches that do not count as narrow: their tasks send tasks, need each other, or come one by one in a loop."""
    attempts, found = observation.measured, task_batches(observation)
    count = len(found.size)
    excused = np.zeros(count, dtype=bool)
    excused[found.batch[nested(observation).graphs[found.task] > 0]] = True
    batch = np.full(len(attempts.start), -1)
    batch[found.task] = found.batch
    here, there = task_needs(observation)
    known = batch[here] >= 0
    here, there = here[known], there[known]
    fed = np.zeros(count, dtype=bool)
    fed[batch[here]] = True
    _, prefix = task_prefixes(observation)
    alike = here[prefix[here] == prefix[there]]
    combined = np.bincount(alike, minlength=len(batch))[alike]  # number of results of its prefix that each task needs
    excused[batch[alike[combined <= FAN_IN]]] = True
    begins = found.first[:-1]
    if (sent := loop(observation)) is not None:
        runnable = np.minimum.reduceat(attempts.runnable[found.task], begins)
        excused |= (sent.begin <= runnable) & (runnable <= sent.end)
    _, group = codes(attempts.group)
    excused |= ~fed & (np.bincount(group)[group[found.task[begins]]] >= observation.threads)
    return excused
