"""Attempts that raised an error and were repeated."""

from __future__ import annotations

from collections import Counter

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.departures import given_up
from scalescope.diagnosis.evidence.inside_tasks import AFTER, RETRY, waits
from scalescope.diagnosis.evidence.prefect_tasks import prefect_seconds
from scalescope.diagnosis.evidence.task_table import largest_prefix
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.records import STATUS_ERRED
from scalescope.model.trial import TrialState
from scalescope.model.words import percent, plural

RETRIED_TASKS = TrialCause(
    code="retried-tasks",
    title="Tasks fail and are tried again",
    needs="At least 10 % of the worker time passed in attempts that raised (table tasks, status 1), or in retries of "
    "Prefect within a task and the waits before them. Or tasks slept for 10 % of the worker time while they handled an "
    "exception, or in a library that repeats calls (table inside).",
    ruled_out_by="Attempts that ended with their worker (worker-died, worker-killing-task).",
    remedy="Fix what raises the error, or retry only the failing call, within the task and with a pause",
    link="https://distributed.dask.org/en/stable/resilience.html#user-code-failures",
    parts=("lost",),
    precedence=20,
    premise="The attempts and their errors are recorded.",
)


@RETRIED_TASKS.finds
def retried_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: durations of attempts that raised, even if none succeeded later; or waits between retries."""
    if within := _by_prefect(observation) or _by_themselves(observation):
        return within
    attempts = observation.measured
    erred = observation.numbers("tasks", "status")[attempts.row] == STATUS_ERRED
    killed = given_up(observation)
    if killed:
        erred &= ~np.isin(attempts.key, list(killed))
    if observation.trial.state is TrialState.FAILED:  # the error that ended the work was not retried
        tried = observation.numbers("tasks", "retries")[attempts.row] > 0
        erred &= np.isin(attempts.key, [key for key, again in zip(attempts.key, tried, strict=True) if again])
    lost_s = float((attempts.stop - attempts.start)[erred].sum())
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, _ = largest_prefix(np.where(erred, attempts.stop - attempts.start, 0.0), observation)
    own = np.asarray(attempts.prefix) == prefix
    failed, made = int((erred & own).sum()), int(own.sum())
    raised = Counter(
        words.first_line(str(message.get("exception", "")))
        for _, message in observation.events("task-erred")
        if str(message.get("key")) not in killed
    )
    said = f" ({raised.most_common(1)[0][0]})" if raised else ""
    return RETRIED_TASKS.finding(
        observation,
        lost_s,
        f"{failed:,} of {plural(made, 'attempt')} of `{prefix}` raised{said}: {percent(share)} of the worker time was "
        "spent on failed attempts.",
        f"fix the error in `{prefix}`, or retry only the failing call inside the task, with a growing pause",
        Evidence("attempts that raised", int(erred.sum()), "table tasks, status 1"),
        Evidence("attempts in all", len(erred), "table tasks"),
        Evidence("thread-seconds in attempts that raised", round(lost_s, 3), "table tasks"),
        *(Evidence("most frequent error", text, f"events, {count:,} times") for text, count in raised.most_common(1)),
        confidence=0.9,
    )


def _by_prefect(observation: Observation) -> Finding | None:
    """The finding for tasks that Prefect retries: a task keeps its thread while it waits for the next try."""
    found = prefect_seconds(observation).values()
    lost_s = sum(each.raised + each.retry for each in found)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worst = max(found, key=lambda each: each.raised + each.retry)
    waited = f", including {words.number(worst.retry)} thread-seconds of pauses before a retry" if worst.retry else ""
    errors = f" ({words.some(sorted(worst.errors))})" if worst.errors else ""
    remedy = f"fix the error in `{worst.prefix}`"
    if worst.retry > worst.raised:
        remedy += ", or shorten `retry_delay_seconds`: a task that waits to be tried again holds its thread"
    return RETRIED_TASKS.finding(
        observation,
        lost_s,
        f"`{worst.prefix}` raised{errors} and was retried by Prefect: {percent(share)} of the worker time was spent on "
        f"that{waited}.",
        Remedy(remedy, changes=(Term.WORK, Term.SPAN)),
        Evidence("thread-seconds in calls that raised", round(worst.raised, 3), f"prefix {worst.prefix}"),
        Evidence("thread-seconds waiting for a retry", round(worst.retry, 3), f"prefix {worst.prefix}"),
        confidence=0.9,
    )


def _by_themselves(observation: Observation) -> Finding | None:
    """The finding for tasks that sleep between tries of a failing call, and keep their threads meanwhile."""
    found = waits(observation).get(RETRY)
    if found is None or (share := observation.share_of(found.seconds)) < NOTEWORTHY:
        return None
    error = AFTER.search(found.function)
    return RETRIED_TASKS.finding(
        observation,
        found.seconds,
        f"`{found.prefix}` sleeps for {percent(found.share)} of its time{found.at}, to repeat calls that failed"
        f"{f' ({error[1]})' if error else ''}: {percent(share)} of the worker time.",
        Remedy(
            f"fix the calls that fail in `{found.prefix}`; if a service limits the rate of calls, ask for more per "
            "call, or run fewer tasks at once (`resources=`): more threads do not help",
            changes=(Term.WORK, Term.SPAN),
        ),
        Evidence("thread-seconds asleep between tries", round(found.seconds, 3), "table inside"),
        confidence=0.8,
    )
