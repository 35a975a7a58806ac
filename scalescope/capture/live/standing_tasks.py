"""Finds the tasks of a cluster that stands still: their lines, workers and times."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dask.utils import key_split

from scalescope.capture.live import snapshot
from scalescope.capture.shipping import Shipment
from scalescope.capture.user_code import is_library
from scalescope.model.standstill import (
    ALL_PAUSED,
    ASKS_FOR,
    NO_THREAD,
    NO_WORKER,
    PAUSED,
    RESULTS,
    STILL_S,
    StandingTasks,
    Standstill,
    WorkerMemory,
)
from scalescope.sent_code import SENT

ANSWER_S = 2.0  # seconds within which a worker must answer
ASKED = 5  # largest number of workers that are asked why they do not start their tasks
BUSY_CORES = 0.5  # a worker that uses at least this many cores counts as computing, whatever its call stacks show
ASSIGNED = "assigned to a worker that"
# By file of `distributed`: the class whose object a task waits for if it waits in this file.
WAITED_FOR = {
    "actor.py": "ActorFuture",
    "client.py": "Client",
    "event.py": "Event",
    "lock.py": "Lock",
    "multi_lock.py": "MultiLock",
    "queues.py": "Queue",
    "semaphore.py": "Semaphore",
    "variable.py": "Variable",
}
GROUPS, PREFIX = 20, 100  # most groups of tasks that are kept, and characters of their prefixes

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_LIBRARY = re.compile(r"[/\\]lib[/\\]python3(\.\d+)?[/\\]", re.IGNORECASE)


class RemoteCalls(Protocol):
    """Calls that `scalescope.capture.live.remote_calls` offers."""

    def scheduler(self, shipment: Shipment, *arguments: Any, limit_s: float) -> Any: ...

    def worker(self, worker: str, shipment: Shipment, *arguments: Any, limit_s: float) -> Any: ...


@dataclass(frozen=True)
class StandingTask:
    """A task that has not ended, on a cluster on which nothing moves."""

    key: str
    worker: str  # address of its worker; empty if it has none
    since: float | None  # time of its assignment to the worker, in seconds since the epoch
    where: str  # the line of the user's code, as `my_job.py:14 in load`
    call: str  # function called at that line
    problem: str  # disagreement of scheduler and worker, or reason why the task has not begun
    holds: bool  # True if it holds a thread
    waits_for: str  # the class of `distributed` in which it waits; empty if it does not wait


@dataclass(frozen=True)
class Hang:
    """Tasks and workers of a cluster on which nothing moves."""

    since: float  # time at which a task last began or ended, in seconds since the epoch
    tasks: tuple[StandingTask, ...]
    beyond: int  # number of tasks that are not listed
    computing: tuple[str, ...]  # workers that use a core, so that their tasks may just be slow
    hints: tuple[str, ...]


def standstill(asker: RemoteCalls, limit_s: float, enough_s: float = STILL_S) -> Standstill:
    """The tasks of a cluster on which nothing moves, grouped by line of code; no groups if something moves.

    Nothing moves if no task has begun or ended for `enough_s` seconds. The scheduler has `limit_s` seconds to answer,
    and `ANSWER_S` more to ask its workers.
    """
    found = asker.scheduler(Shipment(snapshot, "standing_tasks"), ANSWER_S, limit_s=limit_s + ANSWER_S)
    since = found["moved_at"]
    stands = since is not None and found["time"] - since >= enough_s
    hang = described(since, found, states(asker, found)) if stands else None
    return counted(hang, since, found, enough_s)


def counted(hang: Hang | None, since: float | None, found: Mapping[str, Any], enough_s: float) -> Standstill:
    """The tasks of a hang, grouped by line of code; no groups without a hang. `since`: last begin or end of a task."""
    still_s = None if since is None else max(found["time"] - since, 0.0)
    threads = sum(count for count, _, _ in found["workers"].values())
    seen = Standstill(still_s, threads, found["taken"], found["left"], found["ready"], 0, (), enough_s=enough_s)
    if hang is None:
        return seen
    stuck = _stuck(hang, found)
    groups = Counter(
        StandingTasks(
            prefix=key_split(each.key)[:PREFIX],
            tasks=1,
            holds=each.holds,
            where=each.where,
            call=each.call,
            waits_for=each.waits_for,
            problem=each.problem,
            stuck=int(each.worker in stuck),
        )
        for each in hang.tasks
    )
    largest = tuple(replace(each, tasks=n, stuck=n * each.stuck) for each, n in groups.most_common(GROUPS))
    memory = tuple(WorkerMemory(worker, *told) for worker, told in found.get("memory", {}).items())
    return replace(seen, computing=len(hang.computing), groups=largest, hints=hang.hints, memory=memory)


def states(asker: RemoteCalls, found: Mapping[str, Any]) -> dict[str, Mapping[str, str] | None]:
    """States of tasks that workers with free threads should have started, by worker; None for a silent worker.

    `found` is the result of `scalescope.capture.live.snapshot.standing_tasks`. At most `ASKED` workers are asked.
    """
    answers: dict[str, Mapping[str, str] | None] = {}
    given: dict[str, list[str]] = {}
    for task in found["tasks"]:
        given.setdefault(task["worker"], []).append(task["key"])
    for worker, keys in given.items():
        stacks = found["stacks"].get(worker)
        missing = [] if stacks is None else [key for key in keys if key not in stacks]
        if missing and not _is_full(found, worker) and len(answers) < ASKED:
            answers[worker] = _states_on(asker, worker, missing)
    return answers


def described(
    since: float, found: Mapping[str, Any], states: Mapping[str, Mapping[str, str] | None], sent_from: str = ""
) -> Hang:
    """Combine the answers of a scheduler (`found`) and of its workers (`states`).

    `sent_from`: name of the file that defines functions that were sent by value, if known.
    """
    tasks, hints = [], []
    for each in found["tasks"]:
        key, worker = each["key"], each["worker"]
        stack = (found["stacks"].get(worker) or {}).get(key, ())
        where, call, waits_for = _line(stack)
        holds = bool(stack) and not each["seceded"]
        problem = _problem(each, found, states)
        tasks.append(StandingTask(key, worker, each["since"], where, call, problem, holds, waits_for))
        if waits_for in ("Semaphore", "Lock") and found["held"]:
            held = ", ".join(f"`{name}`" for name in found["held"][:5])
            free = "If the holder is dead, the lock becomes free after `distributed.scheduler.locks.lease-timeout`."
            hints.append(f"Held: {held}. {free}")
    tasks = _with_files(tasks, sent_from)
    if any(stacks is None for stacks in found["stacks"].values()):
        hints.append("A worker does not answer: it was stopped, its host swaps, or its host is gone. Check the host.")
    if any(task.holds and task.waits_for in RESULTS and _is_full(found, task.worker) for task in tasks):
        hints.append("Tasks wait for results and hold all threads: use `with worker_client()`, or `secede()` first.")
    if any("does not have it" in task.problem for task in tasks):
        lost = "A worker does not know a task that the scheduler gave it"
        hints.append(f"{lost}: `client.retire_workers` or a restart of the worker sends the task again.")
    if any(task.problem.startswith(NO_WORKER) for task in tasks):
        hints.append("No worker meets the restrictions of a task: look at the task's `workers=` and `resources=`.")
    computing = tuple(
        worker
        for worker, (_, cores, _) in found["workers"].items()
        if cores >= BUSY_CORES and found["stacks"].get(worker) and _holding(found, worker)
    )
    tasks.sort(key=lambda task: task.problem == NO_THREAD)
    return Hang(since, tuple(tasks), found["beyond"], computing, tuple(dict.fromkeys(hints)))


# ------------------------------------------------------------------ parts


def _stuck(hang: Hang, found: Mapping[str, Any]) -> set[str]:
    waiting = Counter(each.worker for each in hang.tasks if each.holds and each.waits_for)
    return {worker for worker, tasks in waiting.items() if tasks >= found["workers"][worker][0]}


def _states_on(asker: RemoteCalls, worker: str, keys: list[str]) -> Mapping[str, str] | None:
    try:
        answer: Mapping[str, str] = asker.worker(worker, Shipment(snapshot, "task_states"), keys, limit_s=ANSWER_S)
    except (OSError, TimeoutError, ValueError, RuntimeError):
        return None
    return answer


def _holding(found: Mapping[str, Any], worker: str) -> int:
    seceded = {task["key"] for task in found["tasks"] if task["seceded"]}
    return sum(key not in seceded for key in found["stacks"].get(worker) or ())


def _is_full(found: Mapping[str, Any], worker: str) -> bool:
    return _holding(found, worker) >= int(found["workers"][worker][0])


def _problem(task: Mapping[str, Any], found: Mapping[str, Any], states: Mapping[str, Mapping[str, str] | None]) -> str:
    worker, key = task["worker"], task["key"]
    stacks = found["stacks"].get(worker, {})
    if not worker:
        return ASKS_FOR + task["asks"] if task["asks"] else ALL_PAUSED if task.get("paused") else NO_WORKER
    if stacks is None:
        heard = time.strftime("%H:%M:%S", time.localtime(found["workers"][worker][2]))
        return f"{ASSIGNED} has been silent since {heard}"
    if key in stacks:
        return ""
    if task.get("paused"):
        return PAUSED
    if worker not in states:
        return NO_THREAD if _is_full(found, worker) else f"{ASSIGNED} has a free thread"
    answer = states[worker]
    if answer is None:
        return f"{ASSIGNED} does not answer"
    if key not in answer:
        return f"{ASSIGNED} does not have it"
    return f"its worker has free threads and says: {answer[key]}"


def _line(stack: Sequence[str]) -> tuple[str, str, str]:
    frames = [match.groups() for match in map(_FRAME.search, stack) if match]
    own = [
        n for n, (file, _, _) in enumerate(frames) if file == SENT or not (is_library(file) or _LIBRARY.search(file))
    ]
    at = own[-1] if own else len(frames) - 1
    if at < 0:
        return "", "", ""
    (file, line, name), inner = frames[at], frames[at + 1 :]
    call = f"{inner[0][2]} ({_path(inner[0][0])[-1]})" if inner else ""
    parts = [_path(each) for each, _, _ in inner]
    waits_for = [WAITED_FOR[base] for *_, package, base in parts if package == "distributed" and base in WAITED_FOR]
    at_line = f"line {line}" if file == SENT else f"{_path(file)[-1]}:{line}"
    return f"{at_line} in {name}", call, next(iter(waits_for), "")


def _with_files(tasks: Sequence[StandingTask], sent_from: str) -> list[StandingTask]:
    # A function that was sent by value has lost its file's name; another task at the same line may still have it.
    named = {each.where.rpartition(":")[2]: each.where for each in tasks if ":" in each.where}
    found = []
    for each in tasks:
        line = each.where.removeprefix("line ")
        file = f"{sent_from}:{line}" if sent_from and line != each.where else each.where
        found.append(replace(each, where=named.get(line, file)))
    return found


def _path(file: str) -> list[str]:
    return ["", *re.split(r"[/\\]", file)]
