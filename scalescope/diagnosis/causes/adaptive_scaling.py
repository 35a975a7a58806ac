"""A cluster that scales itself retired workers before tasks needed them, or started them too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.departures import Departure, deaths, departures
from scalescope.diagnosis.evidence.held_results import peaks
from scalescope.diagnosis.evidence.task_table import largest_prefix
from scalescope.diagnosis.evidence.timeline import occupied_from, timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import percent, plural

COMES_S = 5.0  # seconds; if tasks wait for less, starting another worker does not pay

ADAPTIVE_SCALING = TrialCause(
    code="adaptive-scaling",
    title="Workers left too early, or came too late",
    needs="The cluster is adaptive, or workers left by request and others came after them. For at least 10 % of the "
    "worker time, tasks waited for threads of workers that had been retired or were not there yet. Or an adaptive "
    "cluster never grew to its `maximum`, while enough tasks for that many workers waited.",
    ruled_out_by="Workers that nobody needed while they were away (scaled-down). Workers that died (worker-died), or "
    "left by request and were not replaced (workers-missing). A cluster that is not adaptive (late-workers).",
    remedy="Keep the workers: `cluster.adapt(minimum=N)` or `cluster.scale(N)`; or retire them later "
    "(`cluster.adapt(wait_count=N)`)",
    link="https://docs.dask.org/en/stable/adaptive.html",
    parts=("late_start", "lost"),
    rules_out=("late-workers", "workers-missing", "data-locality"),
    premise="The cluster had these workers at another time, or its `maximum` allows them.",
)


@ADAPTIVE_SCALING.finds
def adaptive_scaling(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of workers absent (retired too early or started too late) for which tasks waited."""
    attempts, line = observation.measured, timeline(observation)
    adaptive, gone = _adaptive(observation), _retired(observation)
    if kept_small := _kept_small(observation, adaptive):
        return kept_small
    left = np.sort([each.time - attempts.epoch for each in gone])
    came = np.sort(attempts.members.joined[attempts.members.joined > 0])
    if deaths(observation) and not gone:
        return None
    if not adaptive and not (len(left) and len(came) and came[-1] > left[0]):
        return None
    missing = np.minimum(_absent(observation), np.maximum(line.waiting - line.idle, 0.0))
    lost_s = line.integral(missing)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    waited = line.between((missing > 0).astype(float), attempts.runnable, occupied_from(observation))
    stage, _ = largest_prefix(waited, observation)
    of_stage = np.array([name == stage for name in attempts.prefix]) & (waited > 0)
    begin = float(attempts.runnable[of_stage].min(initial=attempts.makespan))
    peak = observation.trial.point.workers
    rounds = _rounds(left, came)
    held = sum(peaks(observation, "managed").get(each.worker, 0.0) for each in gone)
    return ADAPTIVE_SCALING.finding(
        observation,
        lost_s,
        f"{_what_happened(left, came, begin, rounds, peak, stage)}: tasks waited for them, and {percent(share)} of the "
        "worker time was lost.",
        _remedy(observation, adaptive, left, begin),
        Evidence("workers retired", len(left), "table workers, events remove-worker"),
        Evidence("workers that joined after the first task reached the scheduler", len(came), "table workers"),
        Evidence("times that workers came back", rounds, "table workers"),
        Evidence("bytes on the workers that were retired", int(held), "memory"),
        Evidence("thread-seconds of absent workers while tasks waited", round(lost_s, 3), "tables workers and tasks"),
        confidence=0.9,
    )


def _kept_small(observation: Observation, adaptive: Mapping[str, Any]) -> Finding | None:
    """`lost_s`: seconds that the largest allowed number of workers would have saved, times the threads."""
    most, workers, line = adaptive.get("maximum"), observation.trial.point.workers, timeline(observation)
    if not isinstance(most, int) or most <= workers:
        return None
    wanted = observation.threads * (most - workers) / workers
    enough_s = line.integral((line.waiting - line.idle >= wanted).astype(float))
    saved_s = enough_s * (1 - workers / most)
    if enough_s < COMES_S or saved_s < NOTEWORTHY * observation.measured.elapsed:
        return None
    target = f" ({adaptive['target_duration']})" if adaptive.get("target_duration") else ""
    return ADAPTIVE_SCALING.finding(
        observation,
        saved_s * observation.threads,
        f"The adaptive cluster may have {plural(most, 'worker')} but never had more than {workers:,}, while enough "
        f"tasks for {most:,} waited for {words.duration(enough_s)}: Dask starts only as many workers as it needs to "
        f"end the work within `target_duration`{target}.",
        Remedy(
            f"use `cluster.scale({most})`, or `cluster.adapt` with `minimum={most}` or a shorter `target_duration=`",
            saved_s=saved_s,
        ),
        Evidence("most workers allowed (`maximum`)", most, "facts of the cluster"),
        Evidence("seconds in which tasks for all allowed workers waited", round(enough_s, 3), "tables workers, tasks"),
        confidence=0.85,
    )


SCALED_DOWN = TrialCause(
    code="scaled-down",
    title="Workers were away while nobody needed them",
    needs="The cluster is adaptive, or workers left by request. For at least 10 % of the worker time, some of the "
    "cluster's workers were absent, and no task waited for their threads.",
    ruled_out_by="Tasks that waited meanwhile (adaptive-scaling, workers-missing). Workers that died (worker-died).",
    remedy="Nothing: an adaptive cluster is meant to do this",
    link="https://docs.dask.org/en/stable/adaptive.html",
    parts=("late_start", "lost"),
    predicts=False,
    excusable=True,
    premise="Nothing is to be done.",
)


@SCALED_DOWN.finds
def scaled_down(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of retired workers that no task waited for; their absence costs nothing."""
    if deaths(observation) or not (_adaptive(observation) or _retired(observation)):
        return None
    line, absent = timeline(observation), _absent(observation)
    outside_s = observation.measured.elapsed - observation.measured.makespan
    away_s = line.integral(absent - np.minimum(absent, line.waiting)) + outside_s * float(absent[-1])
    if (share := observation.share_of(away_s)) < NOTEWORTHY:
        return None
    return SCALED_DOWN.finding(
        observation,
        away_s,
        f"For {percent(share)} of the worker time, workers were away while no task waited for them: nothing was lost.",
        "nothing has to be done",
        Evidence("workers retired", len(_retired(observation)), "table workers, events remove-worker"),
        Evidence("thread-seconds of absent workers while no task waited", round(away_s, 3), "tables workers and tasks"),
        confidence=0.9,
        severity=Severity.INFO,
    )


def _adaptive(observation: Observation) -> Mapping[str, Any]:
    return (observation.trial.facts.get("cluster") or {}).get("adaptive") or {}


def _retired(observation: Observation) -> list[Departure]:
    return [each for each in departures(observation) if each.expected]


def _absent(observation: Observation) -> Floats:
    absent: Floats = np.maximum(observation.threads - timeline(observation).capacity, 0.0)
    return absent


def _rounds(left: Floats, came: Floats) -> int:
    """How many times workers came after others had left."""
    order = np.argsort(np.concatenate([left, came]), kind="stable")
    arrives = (order >= len(left)).astype(int)
    return int((np.diff(arrives) == 1).sum())


def _what_happened(left: Floats, came: Floats, begin: float, rounds: int, peak: int, stage: str) -> str:
    if rounds > 1:
        return (
            f"Workers left and came back {rounds} times ({len(left):,} were retired and {len(came):,} started, with at "
            f"most {plural(peak, 'worker')} at a time)"
        )
    before = left[left <= begin]
    back = (
        f", and the last new worker joined {words.duration(float(came[-1] - begin))} after it began"
        if len(came) and came[-1] > begin
        else ""
    )
    if len(before):
        gap = words.duration(float(begin - before[-1]))
        return f"{len(before):,} of {plural(peak, 'worker')} were retired {gap} before `{stage}` began{back}"
    if len(left):
        return f"{len(left):,} of {plural(peak, 'worker')} were retired while `{stage}` waited"
    return (
        f"The adaptive cluster began with {plural(peak - len(came), 'worker')} and had all {peak:,} only "
        f"{words.duration(float(came[-1]) if len(came) else 0.0)} after the first task arrived, while `{stage}` waited"
    )


def _remedy(observation: Observation, adaptive: Mapping[str, Any], left: Floats, begin: float) -> str:
    workers = observation.trial.point.workers
    call = f"`cluster.adapt(minimum={workers}, ...)` or `cluster.scale({workers})`"
    if observation.by_prefect:
        call = (
            f'`DaskTaskRunner(..., adapt_kwargs={{"minimum": {workers}, ...}})`, or `n_workers` without `adapt_kwargs`'
        )
    remedy = f"keep the workers while more work will follow: {call}"
    interval = adaptive.get("interval")
    if len(left) and interval:
        idle_s = max(begin - float(left[0]), 1.0) + float(adaptive.get("wait_count") or 1) * interval
        remedy += f"; or let `adapt` retire them later: `wait_count={int(np.ceil(2 * idle_s / interval))}`"
    return remedy
