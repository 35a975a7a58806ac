"""The same task is computed more than once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import compress

import numpy as np

from scalescope import errors
from scalescope.analysis.attempts import Bools
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.meta_computed import sent_for_meta
from scalescope.diagnosis.evidence.client_time import asked_at
from scalescope.diagnosis.evidence.departures import deaths
from scalescope.diagnosis.evidence.inside_tasks import inside
from scalescope.diagnosis.evidence.task_table import TOKEN, largest_prefix, of_prefix, task_column
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.records import AGAIN, STATUS_FINISHED
from scalescope.model.words import percent, plural

DIFFERENT = 2  # fewest different calls, each repeated, that count as repeated work
HALF = 0.5  # least ratio of the client's seconds in `set_index` to those of repeated work, for it to be the reason
DIVISIONS = (
    "pass `divisions=` to `set_index` (and `sorted=True` if the data is already sorted): without divisions, Dask "
    "computes all data once to find them"
)

ONE_TASK = (
    "if equal calls give equal results, use `@delayed(pure=True)` or `delayed(f, pure=True)`, which makes one task of "
    "them; or make each call once, and use its result several times"
)
KEPT = (
    "if equal calls give equal results, make each call once, before the first computation, and keep its result "
    "(`dask.persist(...)`, or hold its future); or compute all results together (`dask.compute(a, b)`), with "
    "`@delayed(pure=True)`"
)

RECOMPUTATION = TrialCause(
    code="recomputation",
    title="Results computed again",
    needs="The same key finished more than once, and the repetitions cost at least 10 % of the worker time. Or Dask "
    "fused a common step into tasks of different keys, and their profiles are alike. Or tasks with random keys have "
    "the same function and arguments, and the function calls nothing named after randomness or time.",
    ruled_out_by="An attempt that failed or was lost before the first success is a retry. Results lost with a dead "
    "worker belong to worker-died or worker-killing-task. A key that the user chose may stand for different work "
    "each time.",
    remedy="Persist results that are used again, or compute everything in one call",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-calling-compute-repeatedly",
    parts=("busy", "lost"),
    changes=(Term.WORK,),
    in_a_flow="let repeated tasks read the result of the first run: `@task(persist_result=True, cache_policy=INPUTS)` "
    "for `{task}` (from `prefect.cache_policies`); also keep the workers until the flow ends",
    premise="Keys or lines of code show that the same work ran again.",
)


@RECOMPUTATION.finds
def recomputation(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of all computations of a task but the last, without results lost with their worker."""
    attempts, again = observation.measured, _computed_again(observation)
    if again is None:
        return _fused(observation)
    durations = attempts.stop - attempts.start
    lost_s = float(durations[again].sum())
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, part = largest_prefix(np.where(again, durations, 0.0), observation)
    keys = Counter(compress(attempts.key, again.tolist()))
    most = max(keys.values()) + 1
    left = bool((~attempts.useful[again]).mean() > 0.5)
    if left and "next" in errors.told(observation.trial.reason):
        return None  # the trial's reason tells why the workers left, and what to do
    why = "because their workers had left" if left else "because nothing kept them between one computation and the next"
    return RECOMPUTATION.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time went to computing {plural(len(keys), 'task')} again (up to {most:,} "
        f"times in all), {percent(part)} of it `{prefix}`: their results were gone {why}.",
        "let workers leave by `client.retire_workers(...)`, which moves their results first, or keep them until the end"
        if left
        else DIVISIONS
        if _set_index_s(observation) >= HALF * lost_s / observation.threads
        else f"keep the results of `{prefix}` (`x = x.persist()`, or hold their futures), or compute all that needs "
        "them in one call (`dask.compute(a, b)`)",
        Evidence("tasks computed more than once", len(keys), "table tasks, by key"),
        Evidence("repeated computations", int(again.sum()), "table tasks, by key"),
        Evidence("thread-seconds of repeated computations", round(lost_s, 3), "table tasks"),
        Evidence("a key computed more than once", next(iter(keys)), "table tasks"),
        Evidence("graphs sent", len(observation.column("graphs", "time")), "table graphs"),
        confidence=0.8,
        place=asked_at(observation),
    )


def _set_index_s(observation: Observation) -> float:
    """Seconds that the client spent in `set_index`."""
    chosen = np.array([call == "set_index" for call in observation.client_calls], dtype=bool)
    return float(observation.numbers("client", "seconds")[chosen].sum())


def _fused(observation: Observation) -> Finding | None:
    # Samples of calls that both prefixes have in common are the work done twice.
    rows, profiles = [], inside(observation)
    for _, told in observation.events(AGAIN):
        later, before = (profiles.get(str(told[name])) for name in ("prefix", "first"))
        if later and before:
            rows.append((min(float(told["seconds"]), later.busy_s) * later.alike(before), told))
    lost_s = sum(seconds for seconds, _ in rows)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    most = max(rows, key=lambda row: row[0])[1]
    tasks = sum(int(each["tasks"]) for _, each in rows)
    if calls := int(most.get("calls", 0)):
        return _same_arguments(observation, str(most["prefix"]), lost_s, tasks, calls)
    step, prefix, first = (str(most[name]) for name in ("step", "prefix", "first"))
    again = f"begin again from `{step}`, as `{first}` did before" if step != prefix else "repeat what earlier tasks did"
    where, call, _ = profiles[prefix].mostly
    mostly = f", mostly {f'`{call}`' if call else 'the code'} at {where}" if where else ""
    return RECOMPUTATION.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time went to work that an earlier computation had done{mostly}: "
        f"{plural(tasks, 'task')} such as `{prefix}` {again}, since nothing kept the earlier results.",
        "persist the collection that several computations start from, before the first of these (`x = x.persist()`), "
        "or compute all results together (`dask.compute(a, b)`)",
        Evidence("tasks that repeat a step of others", tasks, "table events, topic again"),
        Evidence("thread-seconds of the repeats", round(sum(float(each["seconds"]) for _, each in rows), 3), "events"),
        Evidence("thread-seconds in code that had run before", round(lost_s, 3), "tables events and inside"),
        Evidence("graphs sent", len(observation.column("graphs", "time")), "table graphs"),
        confidence=0.8,
        place=asked_at(observation),
    )


def _same_arguments(observation: Observation, prefix: str, lost_s: float, tasks: int, calls: int) -> Finding | None:
    if calls < DIFFERENT:  # a single call made many times is more likely a simulation
        return None
    share, place = percent(observation.share_of(lost_s)), asked_at(observation)
    at_once = len(np.unique(observation.measured.graph[of_prefix(observation, prefix)])) <= 1
    return RECOMPUTATION.finding(
        observation,
        lost_s,
        f"`{prefix}` was called {tasks + calls:,} times with {calls:,} different arguments, each time as another task: "
        f"{share} of the worker time went to calls that had been made before.",
        ONE_TASK if at_once else KEPT,
        Evidence("tasks with the arguments of an earlier one", tasks, "table events, topic again"),
        Evidence("different arguments", calls, "table events, topic again"),
        Evidence("thread-seconds of repeated calls", round(lost_s, 3), "table events"),
        confidence=0.6,
        severity=Severity.MEDIUM,
        place=replace(place, name=prefix) if place is not None and at_once else place,
    )


def _computed_again(observation: Observation) -> Bools | None:
    """Attempts whose key finished again later; None without any.

    Left out: results that died with their worker; tasks that were sent only for `meta`; and keys that the user chose,
    except if a worker left by request and took the result along.
    """
    attempts = observation.measured
    finished = task_column(observation, "status") == STATUS_FINISHED
    keys = attempts.key if bool(finished.all()) else list(compress(attempts.key, finished.tolist()))
    if len(set(keys)) == len(keys):
        return None
    repeated = {key for key, count in Counter(keys).items() if count > 1}
    rows = np.flatnonzero(finished)
    rows = rows[np.fromiter(map(repeated.__contains__, keys), np.bool_, len(keys))]
    rows = rows[np.argsort(attempts.stop[rows], kind="stable")]
    last = {attempts.key[row]: row for row in rows.tolist()}
    again = np.zeros(len(finished), dtype=bool)
    again[rows] = True
    again[list(last.values())] = False
    dead = {death.worker for death in deaths(observation)}
    on_dead = np.array([address in dead for address in attempts.addresses], dtype=bool)
    again &= attempts.useful | ~on_dead[attempts.worker]
    again &= ~sent_for_meta(observation)
    for row in np.flatnonzero(again & attempts.useful).tolist():
        again[row] = bool(TOKEN.search(attempts.key[row]))
    return again if bool(again.any()) else None
