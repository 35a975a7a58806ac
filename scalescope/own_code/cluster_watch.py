"""Looks at a running cluster every few seconds: the activity of its threads, and tasks that stand still."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalescope.capture.live import snapshot, standing_tasks
from scalescope.capture.live.remote_calls import ClientCalls, DirectCalls
from scalescope.capture.live.standing_tasks import Hang, counted, described, states
from scalescope.capture.shipping import Shipment
from scalescope.errors import ClusterError
from scalescope.model import OLDEST_DISTRIBUTED
from scalescope.model.standstill import STILL_S, Standstill

# Seconds between two looks; more if looks would take a larger share of the scheduler's time than SHARE.
INTERVAL_S, SHARE = 2.0, 0.005
CALL_S = 10.0  # seconds within which the scheduler must answer
RATE_S = 30.0  # seconds over which the speed of a group is measured

# Reasons why threads are idle, in words
WAITS = {
    "not_started": "runnable but not started",
    "restricted": "restrictions of the tasks",
    "nothing_runnable": "nothing runnable",
    "client": "the client",
    "paused": "paused workers",
}
DOES = {"working": "working", "standing": "held by tasks that do not move"}
DOES |= {reason: f"idle, {words}" for reason, words in WAITS.items()}


@dataclass(frozen=True)
class Group:
    """A task group in progress."""

    name: str
    done: int
    total: int
    remaining_s: float | None  # estimate from the last `RATE_S` seconds; None if no task ended in them


@dataclass(frozen=True)
class Look:
    """A cluster at one moment."""

    time: float  # seconds since the epoch, on the scheduler's clock
    seen: Mapping[str, Any]  # result of `scalescope.capture.live.snapshot.snapshot`
    groups: tuple[Group, ...]
    tasks_per_s: float | None  # tasks that ended per second since the previous look; None: unknown
    left: tuple[str, ...]  # workers that have left since watching began
    retired: int  # number of workers that left by request, as in an adaptive cluster
    came: int  # workers that have come since watching began
    standstill: Hang | None
    standing: Standstill | None = None  # the tasks of `standstill`, grouped by line of code
    moved: float = 0.0  # time of the look that first saw the latest start or end of a task; 0: none yet

    @property
    def idle(self) -> int:
        return int(self.seen["threads"]) - int(self.seen["working"])

    @property
    def threads(self) -> dict[str, int]:
        """Threads by the keys of `DOES`."""
        return {"standing" if self.stands else "working": self.seen["working"], **self.seen["idle"]}

    @property
    def stands(self) -> bool:
        return self.standstill is not None and not self.standstill.computing


@dataclass
class ClusterWatch:
    """Watches a cluster and sums up what it sees; installs nothing on the cluster."""

    asker: DirectCalls | ClientCalls
    looks: int = 0
    watched_s: float = 0.0  # seconds from the first look to the last
    thread_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(DOES, 0.0))  # by key of `DOES`
    ended: int = 0  # tasks that ended since the first look
    memory_peak: int = 0  # most bytes that all workers together held
    busy_s: float = 0.0  # seconds that looks took on the scheduler
    last: Look | None = None
    sent_from: str = ""  # file that defines functions that were sent by value, if known
    _left: dict[str, None] = field(default_factory=dict)
    _retired: set[str] = field(default_factory=set)
    came: int = 0  # workers that came since the first look
    _moved: tuple[tuple[int, int], float] = ((-1, -1), 0.0)  # counters, and the time of their last change
    _stacks: object = None
    _done: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)

    def look(self) -> Look:
        """Look once; raises `ClusterError` if the scheduler does not answer or is too old."""
        seen = self._ask(Shipment(snapshot, "snapshot"))
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
            self._retired |= set(seen["retired"]) & set(self._left)
            self.came += len(set(seen["workers"]) - set(before.seen["workers"]))
        self.looks += 1
        self.watched_s += passed
        self.ended += ended
        self.busy_s += seen["seconds"]
        self.memory_peak = max(self.memory_peak, seen["memory"])
        standstill, standing = self._standstill(now, seen)
        self.last = Look(
            now,
            seen,
            self._groups(now, seen["groups"]),
            ended / passed if passed > INTERVAL_S / 2 else None,
            tuple(self._left),
            len(self._retired),
            self.came,
            standstill,
            standing,
            self._moved[1] if seen["began"] else 0.0,
        )
        return self.last

    def workers(self) -> list[dict[str, Any]]:
        """See `snapshot.workers`."""
        found: list[dict[str, Any]] = self._ask(Shipment(snapshot, "workers"))
        return found

    def inside(self, kind: str, name: str) -> list[tuple[str, int]]:
        """See `snapshot.inside`."""
        return [(word, number) for word, number in self._ask(Shipment(snapshot, "inside"), kind, name)]

    def follow(
        self, seconds: float, show: Callable[[Look], object], wait: Callable[[float], object] = time.sleep
    ) -> None:
        """Call `look` and `show` repeatedly for `seconds` (0: forever), or until Ctrl-C, with pauses by `wait`."""
        until = time.monotonic() + seconds
        try:
            while True:
                began = time.monotonic()
                found = self.look()
                show(found)
                pause = max(INTERVAL_S - (time.monotonic() - began), found.seen["seconds"] / SHARE)
                left = until - time.monotonic() if seconds else pause
                if left <= 0:
                    return
                wait(min(pause, left))
        except KeyboardInterrupt:
            return

    def to_mapping(self) -> dict[str, Any]:
        """The observations as JSON carries them; moments are in seconds since the epoch."""
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
            "workers_retired": len(self._retired),
            "workers_came": self.came,
            "memory_peak": self.memory_peak,
            "scheduler_seconds": self.busy_s,
            "standstill": standstill and {**vars(standstill), "tasks": [vars(task) for task in standstill.tasks]},
        }

    def _ask(self, shipment: Shipment, *arguments: Any, limit_s: float | None = None) -> Any:
        limit_s = limit_s or CALL_S
        try:
            return self.asker.scheduler(shipment, *arguments, limit_s=limit_s)
        except ValueError as error:
            raise ClusterError(
                "the scheduler does not run functions that a client sends",
                where=self.asker.address,
                cause=str(error),
                next_step="set `distributed.scheduler.pickle: true`, the default, in the scheduler's configuration",
            ) from error
        except (OSError, TypeError, MemoryError) as error:  # TypeError: an address with TLS, but no certificates
            from scalescope.clusters.observed_cluster import CHECK_SCHEDULER, root_cause

            raise ClusterError(
                f"the scheduler cannot be reached, or does not answer within {limit_s:g} s",
                where=self.asker.address,
                cause=str(error) and root_cause(error),
                next_step=CHECK_SCHEDULER,
            ) from error

    def _groups(self, now: float, groups: Sequence[tuple[str, int, int]]) -> tuple[Group, ...]:
        while self._done and self._done[0][0] < now - RATE_S:
            self._done.popleft()
        self._done.append((now, {name: done for name, done, _ in groups}))

        def remaining(name: str, done: int, total: int) -> float | None:
            then, earlier = now, done
            for when, known in reversed(self._done):
                if known.get(name, earlier + 1) > earlier:  # the group is new, or replaced one of the same name
                    break
                then, earlier = when, known[name]
            return (total - done) * (now - then) / (done - earlier) if done > earlier else None

        return tuple(Group(name, done, total, remaining(name, done, total)) for name, done, total in groups)

    def _standstill(self, now: float, seen: Mapping[str, Any]) -> tuple[Hang | None, Standstill | None]:
        counters = (seen["began"], seen["ended"])
        if counters != self._moved[0]:
            self._moved = (counters, float((seen["moved_at"] if self.looks == 1 else None) or now))
        since = self._moved[1]
        if now - since < STILL_S or not any(seen["left"].values()):
            self._stacks = None
            return None, None
        answer_s = standing_tasks.ANSWER_S
        found = self._ask(Shipment(snapshot, "standing_tasks"), answer_s, limit_s=CALL_S + answer_s)
        stacks = ([task["key"] for task in found["tasks"]], found["stacks"])
        before, self._stacks = self._stacks, stacks
        if before != stacks:
            return None, None
        hang = described(since, found, states(self.asker, found), self.sent_from)
        return hang, counted(hang, since, found, STILL_S)


def check_release(version: str, address: str) -> None:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_DISTRIBUTED:
        oldest = ".".join(map(str, OLDEST_DISTRIBUTED))
        raise ClusterError(
            f"the scheduler runs distributed {version}; watching needs {oldest} or later",
            where=address,
            next_step="update distributed on the scheduler",
        )
