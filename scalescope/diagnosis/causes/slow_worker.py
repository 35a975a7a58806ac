"""One worker, or a few, are slower whatever they run."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Bools
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.worker_restriction import WORKER_RESTRICTION
from scalescope.diagnosis.evidence.delayed_batches import CANDIDATES, IdleThreads
from scalescope.diagnosis.evidence.placement import confined
from scalescope.diagnosis.evidence.rescheduled import placed_anywhere_saves_s
from scalescope.diagnosis.evidence.task_batches import slow_workers, task_batches
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import number, percent, plural

SLOW_WORKER = TrialCause(
    code="slow-worker",
    title="A worker is slow at everything",
    needs="A worker's tasks (at least two) took at least 1.5 times as long as others of the same groups, three "
    "quarters of them clearly so and more than the spread of durations explains. At most a third of the workers are "
    "like that.",
    ruled_out_by="Single long tasks on a worker that is fast otherwise (straggler). Durations so spread that a slow "
    "median is chance (skewed-tasks). All workers alike. Tasks that may not run elsewhere, which may just be larger "
    "(worker-restriction).",
    remedy="Retire the worker and look at its host",
    link="https://distributed.dask.org/en/stable/diagnosing-performance.html",
    parts=("busy", "no_runnable_task", "tail", "not_assigned"),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("sequential-graph",),
    premise="The same tasks took longer on this worker than on the others.",
)


@SLOW_WORKER.finds
def slow_worker(observation: Observation) -> Finding | None:
    """`lost_s`: computing beyond the median worker's, and threads idle until slow workers finish a batch."""
    slow = slow_workers(observation)
    if not slow:
        return None
    attempts, found = observation.measured, task_batches(observation)
    ratio = np.ones(len(attempts.addresses))
    for worker, times in slow:
        ratio[worker] = times
    durations = attempts.stop - attempts.start
    times_of = ratio[attempts.worker]
    excess_s = float((durations * (1 - 1 / times_of))[attempts.useful].sum())
    idle, waited_s = IdleThreads(observation), 0.0
    for batch in _last_on(observation, ratio > 1):
        tasks = found.tasks(batch)
        others = tasks[times_of[tasks] == 1]
        slowed = tasks[times_of[tasks] > 1]
        usual = float((attempts.start[slowed] + durations[slowed] / times_of[slowed]).max())
        waited_s += idle.claim(tasks, max(float(attempts.stop[others].max()), usual))[0]
    lost_s = excess_s + waited_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worker, times = max(slow, key=lambda item: item[1])
    own = attempts.useful & (attempts.worker == worker)
    count, bound = int(own.sum()), bool(confined(observation)[own].all())
    names = [attempts.addresses[each] for each, _ in sorted(slow, key=lambda item: -item[1])]
    which = (
        f"Worker `{names[0]}`{observation.place(names[0])} is"
        if len(names) == 1
        else f"Workers {words.some(names)} are"
    )
    costs = f"(median over {plural(count, 'task')}), which costs {percent(share)} of the worker time"
    evidence = (
        Evidence("slow workers", len(slow), f"of {len(attempts.addresses):,}, table tasks by worker"),
        Evidence("times slower, median of its tasks", round(times, 3), f"table tasks, worker {names[0]}"),
        Evidence("thread-seconds of computing beyond the usual", round(excess_s, 3), "table tasks"),
        Evidence("thread-seconds of others waiting for them", round(waited_s, 3), "tasks and worker time"),
    )
    if bound:
        return WORKER_RESTRICTION.finding(
            observation,
            lost_s,
            f"{which} {number(times, 2)} times slower than the others {costs}: either its tasks are larger, or the "
            "worker is slow, and no other may take them.",
            Remedy(
                "remove `workers=[...]` from the call that makes them, or add `allow_other_workers=True`; if the "
                "worker is slow then, too, look at its host",
                saved_s=placed_anywhere_saves_s(observation),
            ),
            *evidence,
            confidence=0.7,
        )
    return SLOW_WORKER.finding(
        observation,
        lost_s,
        f"{which} {number(times, 2)} times slower than the others at the same tasks {costs}.",
        Remedy(
            f"take {words.some(names)} out (`client.retire_workers`) and look at the host: other processes, fewer or "
            "slower cores, throttling, a slow disk",
            shorter_s=excess_s,
        ),
        *evidence,
        confidence=0.9 if count >= 3 else 0.7,
    )


def _last_on(observation: Observation, slow: Bools) -> list[int]:
    attempts, found = observation.measured, task_batches(observation)
    on_slow = slow[attempts.worker[found.task]]
    stop = attempts.stop[found.task]
    count = len(found.median)
    last = [np.zeros(count), np.zeros(count)]
    for ends, chosen in zip(last, (on_slow, ~on_slow), strict=True):
        np.maximum.at(ends, found.batch[chosen], stop[chosen])
    late = np.where(last[1] > 0, last[0] - last[1], 0.0)
    return [int(batch) for batch in np.argsort(-late, kind="stable")[:CANDIDATES] if late[batch] > 0]
