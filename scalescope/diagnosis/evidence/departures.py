"""Workers that left before the last computation ended, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.records import KUBERNETES, OVER_MEMORY, STATUS_ERRED, STATUS_FINISHED, STATUS_LOST

SETTLE_S = 1.0  # seconds after the last attempt; a worker that leaves within them still counts as a departure
NEAR_S = 2.0  # most seconds between the scheduler's and the nanny's report of one death
_ORDERLY = ("closing_gracefully", "closing")  # states of a worker that leaves by request


@dataclass(frozen=True)
class Departure:
    """A worker that left before the last computation ended."""

    worker: str  # address of the worker
    name: str
    host: str
    time: float  # moment at which the worker left, in seconds since the epoch
    expected: bool  # True if somebody had asked the worker to leave
    reason: str  # reason of the removal, as the scheduler gives it
    held: frozenset[str]  # keys that were assigned to the worker and not finished
    exit_code: int | None = None  # exit code of the worker's process, negative for a signal; None if nobody saw its end
    over_memory: bool = False  # True if the nanny ended the worker for its memory
    words: str = ""  # line of the worker's log that says most about its end; may be empty


@once
def departures(observation: Observation) -> tuple[Departure, ...]:
    end = _last_work(observation)
    rows = zip(
        *(observation.column("workers", name) for name in ("worker", "name", "host", "left", "reason")), strict=True
    )
    gone = sorted((row for row in rows if 0 < row[3] < end), key=lambda row: float(row[3]))
    if not gone:
        return ()
    asked = _asked_to_leave(observation, {str(row[0]) for row in gone})
    held, codes, words = _held(observation), _exit_codes(observation, gone), _last_words(observation)
    over_memory = {str(message.get("worker")) for _, message in observation.events(OVER_MEMORY)}
    return tuple(
        Departure(
            worker=worker,
            name=str(name),
            host=str(host),
            time=float(left),
            expected=worker in asked or str(reason).startswith("retire-workers"),
            reason=str(reason),
            held=frozenset(held.get(worker, ())),
            exit_code=codes.get(worker),
            over_memory=worker in over_memory,
            words=words.get(worker, ""),
        )
        for worker, name, host, left, reason in gone
    )


@once
def deaths(observation: Observation) -> tuple[Departure, ...]:
    return tuple(departure for departure in departures(observation) if not departure.expected)


WAITED_S = 0.1  # least seconds that the client waits after a departure, for lost results to count as missed


def after_all_results(observation: Observation, departure: Departure) -> bool:
    """Whether every task had finished once when the worker left, and the client waited for nothing afterwards."""
    if departure.time < _all_finished(observation) or not len(observation.column("client", "time")):
        return False
    began, ended = observation.client_spans
    left = departure.time - observation.measured.epoch
    waited = np.maximum(ended - np.maximum(began, left), 0.0)[observation.client_waits]
    return float(waited.sum()) < WAITED_S


@once
def _all_finished(observation: Observation) -> float:
    """When every task had finished once, in seconds since the epoch; infinite if one never did."""
    key, done = observation.column("tasks", "key"), observation.numbers("tasks", "done")
    status = np.asarray(observation.column("tasks", "status"), dtype=np.int64)
    first: dict[str, float] = {}
    for row in np.flatnonzero(status == STATUS_FINISHED).tolist():
        first[key[row]] = min(float(done[row]), first.get(key[row], np.inf))
    complete = observation.attempts is not None and len(first) == len(set(key)) > 0
    return max(first.values()) if complete else np.inf


def _last_work(observation: Observation) -> float:
    done = observation.numbers("tasks", "done")
    # The scheduler notes the end of a dying worker's attempts just before it lists the worker as gone.
    return float(done.max()) + SETTLE_S if len(done) else np.inf


def _asked_to_leave(observation: Observation, gone: Collection[str]) -> set[str]:
    """Workers that left by request, by `expected` in the scheduler's events (since 2024), else by their status."""
    asked = {
        str(message.get("worker"))
        for _, message in observation.events("all")
        if message.get("action") == "remove-worker" and message.get("expected") is True
    }
    for topic, text in zip(*(observation.column("events", name) for name in ("topic", "message")), strict=True):
        if topic in gone and topic not in asked and any(f'"status": "{status}"' in text for status in _ORDERLY):
            asked.add(topic)
    return asked


def _held(observation: Observation) -> dict[str, set[str]]:
    """By worker, keys of attempts that were lost with it, or that failed there as the scheduler gave up on the task."""
    status = np.asarray(observation.column("tasks", "status"), dtype=np.int64)
    key, worker = observation.column("tasks", "key"), observation.column("tasks", "worker")
    killed = given_up(observation)
    held: dict[str, set[str]] = {}
    for row in np.flatnonzero(status != STATUS_FINISHED).tolist():
        if status[row] == STATUS_LOST or (status[row] == STATUS_ERRED and key[row] in killed):
            held.setdefault(worker[row], set()).add(key[row])
    return held


@once
def given_up(observation: Observation) -> frozenset[str]:
    """Keys of tasks that the scheduler gave up because too many workers died that held them."""
    events = observation.events("task-erred")
    return frozenset(str(message["key"]) for _, message in events if "KilledWorker" in str(message.get("exception")))


def _exit_codes(observation: Observation, gone: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Exit codes by worker. A nanny may name the previous worker, so unclaimed codes go to the nearest departure."""
    events = [(when, message) for when, message in observation.events("worker-exit") if "exitcode" in message]
    found: dict[str, int] = {}
    for exact in (True, False):
        for worker, _, _, left, _ in gone:
            if worker in found:
                continue
            near = [
                (abs(when - left), i)
                for i, (when, message) in enumerate(events)
                if abs(when - left) <= NEAR_S and (not exact or message.get("worker") == worker)
            ]
            if near:
                code = events.pop(min(near)[1])[1]["exitcode"]
                if isinstance(code, int):
                    found[worker] = code
    return found


def _last_words(observation: Observation) -> dict[str, str]:
    """By worker, the log line that says most about its end: a crash, else the last error or warning."""
    found: dict[str, str] = {}
    crashing: dict[str, bool] = {}  # True once the stack of the crashed thread has begun
    columns = (observation.column("logs", name) for name in ("worker", "level", "text"))
    for worker, level, text in zip(*columns, strict=True):
        if worker in crashing:
            if text.startswith("Current thread"):
                crashing[worker] = True
            elif crashing[worker] and text.startswith("  File "):
                # The main thread, in the event loop, handles signals from outside: its stack does not show the fault.
                found[worker] += "" if "selectors.py" in text else f", {text.strip()}"
                crashing[worker] = False
        elif text.startswith("Fatal Python error"):
            crashing[worker], found[worker] = False, words.first_line(text)
        elif level in ("WARNING", "ERROR", "CRITICAL") and not found.get(worker, "").startswith(KUBERNETES):
            found[worker] = words.first_line(text)
    return found
