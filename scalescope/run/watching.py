"""Looks at a running cluster every few seconds, says what its threads do and, when nothing moves, where it hangs."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalescope.capture import glance
from scalescope.capture.asking import Asker
from scalescope.capture.client import is_library
from scalescope.capture.shipping import Shipment
from scalescope.clusters.waiting import root_cause
from scalescope.errors import ClusterError

INTERVAL_S = 2.0
"""Seconds between two looks; more where a look takes the scheduler more than `SHARE` of that."""
SHARE = 0.005
STILL_S = 10.0
"""Seconds without the beginning or end of a task, after which call stacks are asked for."""
ANSWER_S, CALL_S = 2.0, 10.0
"""Seconds in which a worker, and in which the scheduler must answer."""
RATE_S = 30.0
"""Seconds over which the speed of a group is taken."""
BUSY_CORES = 0.5
"""Cores in use from which on a worker computes, whatever its call stacks show."""
OLDEST = (2024, 8)

WAITS = {
    "not_started": "runnable but not started",
    "restricted": "restrictions of the tasks",
    "nothing_runnable": "nothing runnable",
    "client": "the client",
    "paused": "paused workers",
}
"""What idle threads wait for."""
DOES = {"working": "working", "standing": "held by tasks that do not move"}
DOES |= {reason: f"idle, {words}" for reason, words in WAITS.items()}
SAYS = "processing, says the scheduler; its worker"

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_LIBRARY = re.compile(r"[/\\]lib[/\\]python3(\.\d+)?[/\\]", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Tasks in progress that belong together."""

    name: str
    done: int
    total: int
    remaining_s: float | None  # at the speed of the last half minute; None where nothing has ended in it


@dataclass(frozen=True)
class StandingTask:
    """A task that has neither ended nor moved."""

    key: str
    worker: str  # its address; empty where the scheduler has given it to none
    since: float | None  # when it went there, in seconds since the epoch
    where: str  # the line of the user's code, as `my_job.py:14 in load`
    call: str  # what is called there
    problem: str  # where scheduler and worker disagree, or why it has not begun


@dataclass(frozen=True)
class Standstill:
    """What is found when nothing moves."""

    since: float  # when a task last began or ended, in seconds since the epoch
    tasks: tuple[StandingTask, ...]
    beyond: int  # tasks that are not listed
    computing: tuple[str, ...]  # workers that use the processor: it may be no standstill
    hints: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """A cluster at one moment."""

    time: float  # of the scheduler, in seconds since the epoch
    seen: Mapping[str, Any]  # what `scalescope.capture.glance.glance` returned
    groups: tuple[Group, ...]
    tasks_per_s: float | None  # ended since the look before
    left: tuple[str, ...]  # workers that have left since watching began
    standstill: Standstill | None

    @property
    def idle(self) -> int:
        """Threads."""
        return int(self.seen["threads"]) - int(self.seen["working"])

    @property
    def threads(self) -> dict[str, int]:
        """What they do: the keys of `DOES`."""
        return {"standing" if self.stands else "working": self.seen["working"], **self.seen["idle"]}

    @property
    def stands(self) -> bool:
        """Whether nothing moves, and no worker computes either."""
        return self.standstill is not None and not self.standstill.computing


@dataclass
class Watch:
    """Watches a cluster, and keeps what was seen; nothing is installed.

    Attributes:
        looks: How many were taken.
        watched_s: From the first to the last, in seconds.
        thread_seconds: What the threads did: the keys of `DOES`.
        ended: Tasks that ended meanwhile.
        memory_peak: Bytes of all workers.
        busy_s: What the looks took of the scheduler's time.
        last: The last one.
    """

    asker: Asker
    looks: int = 0
    watched_s: float = 0.0
    thread_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(DOES, 0.0))
    ended: int = 0
    memory_peak: int = 0
    busy_s: float = 0.0
    last: Look | None = None
    _left: dict[str, None] = field(default_factory=dict)
    _moved: tuple[tuple[int, int], float] = ((-1, -1), 0.0)  # counters, and since when they are unchanged
    _stacks: object = None
    _done: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)

    def look(self) -> Look:
        """Look once.

        Raises:
            ClusterError: The scheduler does not answer, or its release is too old.
        """
        seen = self._ask(Shipment(glance, "glance"))
        if not self.looks:
            check_release(seen["version"], self.asker.address)
        now, before = seen["time"], self.last
        passed = now - before.time if before else 0.0
        ended = max(seen["ended"] - before.seen["ended"], 0) if before else 0
        if before:
            for reason, threads in before.threads.items():
                self.thread_seconds[reason] += threads * passed
            gone = set(before.seen["workers"]) - set(seen["workers"])
            self._left.update(dict.fromkeys(sorted(gone)))
        self.looks += 1
        self.watched_s += passed
        self.ended += ended
        self.busy_s += seen["seconds"]
        self.memory_peak = max(self.memory_peak, seen["memory"])
        self.last = Look(
            now,
            seen,
            self._groups(now, seen["groups"]),
            ended / passed if passed > INTERVAL_S / 2 else None,
            tuple(self._left),
            self._standstill(now, seen),
        )
        return self.last

    def follow(self, seconds: float, show: Callable[[Look], object]) -> None:
        """Look and show until the time is over, in seconds (0: without end), or Ctrl-C.

        Raises:
            ClusterError: The scheduler does not answer, or its release is too old.
        """
        until = time.monotonic() + seconds
        try:
            while True:
                began = time.monotonic()
                found = self.look()
                show(found)
                pause = max(INTERVAL_S - (time.monotonic() - began), found.seen["seconds"] / SHARE)
                if seconds and time.monotonic() + pause > until:
                    return
                time.sleep(pause)
        except KeyboardInterrupt:
            return

    def to_mapping(self) -> dict[str, Any]:
        """What was seen, as JSON carries it; times in seconds since the epoch."""
        found = self.last
        standstill = found.standstill if found else None
        return {
            "looks": self.looks,
            "watched_s": self.watched_s,
            "workers": len(found.seen["workers"]) if found else 0,
            "threads": found.seen["threads"] if found else 0,
            "thread_seconds": self.thread_seconds,
            "ended": self.ended,
            "left": found.seen["left"] if found else {},
            "groups": [vars(group) for group in found.groups] if found else [],
            "workers_left": list(self._left),
            "memory_peak": self.memory_peak,
            "scheduler_seconds": self.busy_s,
            "standstill": standstill and {**vars(standstill), "tasks": [vars(task) for task in standstill.tasks]},
        }

    # ---------------------------------------------------------------- inside

    def _ask(self, shipment: Shipment, *arguments: Any, limit_s: float = 0.0) -> Any:
        limit_s = limit_s or CALL_S
        try:
            return self.asker.scheduler(shipment, *arguments, limit_s=limit_s)
        except ValueError as error:
            raise ClusterError(
                "the scheduler cannot be asked",
                where=self.asker.address,
                cause=str(error),
                next_step="have `distributed.scheduler.pickle: true` where it runs, as it is by default",
            ) from error
        except (OSError, TimeoutError, TypeError) as error:  # TypeError: no files for an address with TLS
            raise ClusterError(
                f"the scheduler cannot be reached, or does not answer within {limit_s:g} s",
                where=self.asker.address,
                cause=str(error) and root_cause(error),
                next_step="check that it runs and can be reached from here; with tls:// give the three files of TLS",
            ) from error

    def _groups(self, now: float, groups: Sequence[tuple[str, int, int]]) -> tuple[Group, ...]:
        while self._done and self._done[0][0] < now - RATE_S:
            self._done.popleft()
        self._done.append((now, {name: done for name, done, _ in groups}))

        def remaining(name: str, done: int, total: int) -> float | None:
            then, earlier = now, done
            for when, known in reversed(self._done):
                if known.get(name, earlier + 1) > earlier:  # it was not there, or another of that name was
                    break
                then, earlier = when, known[name]
            return (total - done) * (now - then) / (done - earlier) if done > earlier else None

        return tuple(Group(name, done, total, remaining(name, done, total)) for name, done, total in groups)

    def _standstill(self, now: float, seen: Mapping[str, Any]) -> Standstill | None:
        counters = (seen["began"], seen["ended"])
        if counters != self._moved[0]:
            self._moved = (counters, float((seen["moved_at"] if self.looks == 1 else None) or now))
        since = self._moved[1]
        if now - since < STILL_S or not any(seen["left"].values()):
            self._stacks = None
            return None
        found = self._ask(Shipment(glance, "standing"), ANSWER_S, limit_s=CALL_S + ANSWER_S)
        stacks = ([task["key"] for task in found["tasks"]], found["stacks"])
        before, self._stacks = self._stacks, stacks
        if before != stacks:
            return None
        return _described(since, found, self._states(found))

    def _states(self, found: Mapping[str, Any]) -> dict[str, Mapping[str, str] | None]:
        """What workers with free threads say of the tasks that they should have begun; None from one that is silent."""
        answers: dict[str, Mapping[str, str] | None] = {}
        given: dict[str, list[str]] = {}
        for task in found["tasks"]:
            given.setdefault(task["worker"], []).append(task["key"])
        for worker, keys in given.items():
            stacks = found["stacks"].get(worker)
            missing = [] if stacks is None else [key for key in keys if key not in stacks]
            if missing and _holding(found, worker) < found["workers"][worker][0]:
                answers[worker] = self._states_on(worker, missing)
        return answers

    def _states_on(self, worker: str, keys: list[str]) -> Mapping[str, str] | None:
        try:
            answer: Mapping[str, str] = self.asker.worker(worker, Shipment(glance, "states"), keys, limit_s=ANSWER_S)
        except (OSError, TimeoutError, ValueError, RuntimeError):
            return None
        return answer


def _holding(found: Mapping[str, Any], worker: str) -> int:
    """Threads of a worker that tasks hold."""
    seceded = {task["key"] for task in found["tasks"] if task["seceded"]}
    return sum(key not in seceded for key in found["stacks"].get(worker) or ())


def check_release(version: str, address: str) -> None:
    """Refuse a scheduler of too old a release of distributed.

    Raises:
        ClusterError: It is.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise ClusterError(
            f"the scheduler runs distributed {version}; watching needs {OLDEST[0]}.{OLDEST[1]} or later",
            where=address,
            next_step="`scalescope.diagnose(client)` records a block of code on clusters from 2023.5 on",
        )


def _described(since: float, found: Mapping[str, Any], states: Mapping[str, Mapping[str, str] | None]) -> Standstill:
    tasks, hints = [], []
    full: list[StandingTask] = []
    for each in found["tasks"]:
        key, worker = each["key"], each["worker"]
        stacks = found["stacks"].get(worker, {})
        where, call, file = _line((stacks or {}).get(key, ()))
        task = StandingTask(key, worker, each["since"], where, call, _problem(each, found, states))
        tasks.append(task)
        if (
            file.endswith("client.py")
            and not each["seceded"]
            and _holding(found, worker) >= found["workers"][worker][0]
        ):
            full.append(task)
        if file.endswith(("semaphore.py", "lock.py")) and found["held"]:
            held = ", ".join(f"`{name}`" for name in found["held"][:5])
            hints.append(f"Held: {held}; by a dead process until `distributed.scheduler.locks.lease-timeout` is over.")
    if any(stacks is None for stacks in found["stacks"].values()):
        hints.append("A worker does not answer: it was stopped, swaps, or its host is gone. Look there.")
    if full:
        hints.append("Tasks wait for results and hold all threads: use `with worker_client()`, or `secede()` before.")
    if any("does not have it" in task.problem for task in tasks):
        hints.append("A message was lost: `client.retire_workers`, or a restart of that worker, sends its tasks again.")
    if any(task.worker == "" for task in tasks):
        hints.append("No worker meets the restrictions of a task: look at its `workers=` and `resources=`.")
    computing = tuple(
        worker
        for worker, (_, cores, _) in found["workers"].items()
        if cores >= BUSY_CORES and found["stacks"].get(worker) and _holding(found, worker)
    )
    return Standstill(since, tuple(tasks), found["beyond"], computing, tuple(dict.fromkeys(hints)))


def _problem(task: Mapping[str, Any], found: Mapping[str, Any], states: Mapping[str, Mapping[str, str] | None]) -> str:
    worker, key = task["worker"], task["key"]
    stacks = found["stacks"].get(worker, {})
    if not worker:
        return "no worker may run it"
    if stacks is None:
        heard = time.strftime("%H:%M:%S", time.localtime(found["workers"][worker][2]))
        return f"{SAYS} is silent since {heard}"
    if key in stacks:
        return ""
    if worker not in states:
        return "waits for a thread there"
    answer = states[worker]
    if answer is None:
        return f"{SAYS} does not answer"
    if key not in answer:
        return f"{SAYS} does not have it"
    return f"its worker has free threads and says: {answer[key]}"


def _line(stack: Sequence[str]) -> tuple[str, str, str]:
    """The innermost line outside of libraries, what is called there, and the file of that; or else the innermost."""
    frames = [match.groups() for match in map(_FRAME.search, stack) if match]
    own = [n for n, (file, _, _) in enumerate(frames) if not (is_library(file) or _LIBRARY.search(file))]
    at = own[-1] if own else len(frames) - 1
    if at < 0:
        return "", "", ""
    file, line, name = frames[at]
    called = frames[at + 1] if at + 1 < len(frames) else ("", "", "")
    base = _base(called[0])
    return f"{_base(file)}:{line} in {name}", called[2] and f"{called[2]} ({base})", base


def _base(file: str) -> str:
    return re.split(r"[/\\]", file)[-1]
