"""A small cluster that runs small workloads in no time: tables as the recorder would write them."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope.analysis.measure import measure
from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Finding
from scalescope.model.records import from_rows
from scalescope.model.standstill import STANDSTILL, Standstill
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState
from support.findings import findings_of, observed
from support.small_records import EPOCH

# Codes whose lost time lies within the makespan; a large graph, for one, also costs time before it
NOTEWORTHY = {
    *("straggler", "skewed-tasks", "slow-worker", "tiny-tasks", "results-awaited-in-loop", "slow-submission"),
    *("few-tasks-in-flight", "nested-client", "worker-restriction", "late-workers", "data-locality"),
}


@dataclass(frozen=True)
class Task:
    seconds: float  # duration on a worker of usual speed
    name: str = "work"  # its prefix, and its group
    needs: tuple[int, ...] = ()  # indices of tasks whose results it needs
    graph: int = 0  # index of the graph that it was sent in
    on: tuple[int, ...] = ()  # workers that may run it; empty means all of them
    pinned: bool = True  # True if `on` is a restriction, False if the scheduler chose these workers
    nbytes: int = 28  # bytes of its result
    transfer: float = 0.0  # seconds in which its inputs are fetched


@dataclass(frozen=True)
class Graph:
    """When a graph is sent: at a time, or some time after all tasks of another one have ended."""

    at: float = 0.0  # seconds from the begin, or from the end of `after`
    after: int | None = None  # index of a graph whose tasks must have ended
    seconds: float = 0.0  # seconds in which the scheduler takes it in
    nbytes: int = 1000
    client: str = "Client-1"
    task: str = ""  # key of the task that sends it


@dataclass
class Cluster:
    """Runs tasks in their order on the first free worker that may have them."""

    workers: int  # number of workers
    threads: int = 1  # threads of each worker
    # Moment at which a worker joins, by index; all others are there from before
    joined: Mapping[int, float] = field(default_factory=dict)
    left: Mapping[int, float] = field(default_factory=dict)  # moment at which a worker leaves, by index
    slower: Mapping[int, float] = field(default_factory=dict)  # factor on the durations of tasks on a worker, by index
    dispatch_s: float = 0.0  # seconds in which the scheduler hands out a task, one after the other
    gap_s: float = 0.0  # seconds that a worker needs before each task
    hosts: int = 1  # number of hosts; workers are on them in turn
    asked: int = 0  # workers asked for; 0 means as many as there are
    events: Sequence[tuple[float, str, Mapping[str, Any]]] = ()

    def run(self, tasks: Sequence[Task], graphs: Sequence[Graph] = (Graph(),), **trial: Any) -> Observation:
        """The observation of a trial of these tasks."""
        rows, sent = _Run(self, tasks, graphs).finish()
        return self.observe(rows, graphs, sent, **trial)

    def observe(
        self, rows: Sequence[Mapping[str, Any]], graphs: Sequence[Graph] = (), sent: Sequence[float] = (), **given: Any
    ) -> Observation:
        """The observation of a trial with these rows of the table `tasks`; times are relative to its begin."""
        counts = Counter(row.get("graph", 0) for row in rows)
        tables = {
            "tasks": _columns("tasks", [{**row, "graph": row.get("graph", -1) + 1} for row in rows]),
            "dependencies": from_rows(
                "dependencies", [{"task": i, "needs": j} for i, row in enumerate(rows) for j in row.get("needs", ())]
            ),
            "graphs": _columns(
                "graphs",
                [
                    {"time": when, "tasks": counts[i]}
                    | {name: getattr(graph, name) for name in ("seconds", "client", "nbytes", "task")}
                    for i, (graph, when) in enumerate(zip(graphs, sent, strict=True))
                ],
            ),
            "workers": _columns("workers", [self._member(i) for i in range(self.workers)]),
            "events": _columns(
                "events",
                [{"time": when, "topic": topic, "message": json.dumps(text)} for when, topic, text in self.events],
            ),
        }
        point = Point(self.asked or self.workers, self.threads)
        metrics = measure(tables, threads=point.threads, elapsed_s=1.0) if rows else None
        state = TrialState.VALID if rows else TrialState.INVALID
        trial = replace(Trial("t", point, 0, False, state, metrics=metrics, real_s=60.0), **given)
        return Observation.of(trial, tables)

    def _member(self, worker: int) -> dict[str, Any]:
        known = {"worker": address(worker), "name": str(worker), "host": self._host(worker), "nthreads": self.threads}
        return {**known, "joined": self.joined.get(worker, -5.0), "left": self.left.get(worker, 0.0)}

    def _host(self, worker: int) -> str:
        return f"h{worker % self.hosts}" if self.hosts > 1 else "h"


def address(worker: int) -> str:
    return f"tcp://10.0.0.{worker}:4000"


class _Run:
    """A discrete-event simulation; first come, first served."""

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], graphs: Sequence[Graph]) -> None:
        self.cluster, self.tasks, self.graphs = cluster, tasks, graphs
        self.events: list[tuple[float, int, str, int]] = []
        self.free = {i: cluster.threads for i in range(cluster.workers) if cluster.joined.get(i, 0.0) <= 0}
        self.threads = {i: list(range(1, cluster.threads + 1)) for i in range(cluster.workers)}
        self.ready: list[int] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self.known: dict[int, float] = {}
        self.sent = [0.0] * len(graphs)
        self.members: list[list[int]] = [[] for _ in graphs]
        for i, task in enumerate(tasks):
            self.members[task.graph].append(i)
        self.open = [len(members) for members in self.members]
        self.next: dict[int, list[int]] = {}
        for i, each in enumerate(graphs):
            if each.after is not None:
                self.next.setdefault(each.after, []).append(i)
        self.missing = [len(task.needs) for task in tasks]
        self.dependents: dict[int, list[int]] = {}
        for i, task in enumerate(tasks):
            for need in task.needs:
                self.dependents.setdefault(need, []).append(i)
        self.scheduler = 0.0

    def finish(self) -> tuple[list[dict[str, Any]], list[float]]:
        for i, graph in enumerate(self.graphs):
            if graph.after is None:
                self._at(graph.at, "sent", i)
        for worker, when in self.cluster.joined.items():
            if when > 0:
                self._at(when, "joined", worker)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                _, _, what, which = heapq.heappop(self.events)
                getattr(self, f"_{what}")(now, which)
            self._assign(now)
        assert len(self.rows) == len(self.tasks), "a task could never run"
        order = sorted(self.rows, key=lambda i: self.rows[i]["done"])  # rows are written when a task ends
        place = {task: row for row, task in enumerate(order)}
        rows = [self.rows[i] | {"needs": tuple(place[j] for j in self.tasks[i].needs)} for i in order]
        return rows, self.sent

    def _at(self, when: float, what: str, which: int) -> None:
        heapq.heappush(self.events, (when, len(self.rows) * 10 + len(self.events), what, which))

    def _sent(self, now: float, graph: int) -> None:
        self.sent[graph] = now
        for i in self.members[graph]:
            self.known[i] = now
            if not self.missing[i]:
                self.ready.append(i)

    def _joined(self, now: float, worker: int) -> None:
        self.free[worker] = self.cluster.threads

    def _ended(self, now: float, task: int) -> None:
        row = self.rows[task]
        self.free[row["index"]] += 1
        self.threads[row["index"]].append(row["thread"])
        for other in self.dependents.get(task, ()):
            self.missing[other] -= 1
            if not self.missing[other] and other in self.known:
                self.known[other] = now
                self.ready.append(other)
        graph = self.tasks[task].graph
        self.open[graph] -= 1
        if not self.open[graph]:
            for i in self.next.get(graph, ()):
                self._at(now + self.graphs[i].at, "sent", i)

    def _assign(self, now: float) -> None:
        left = []
        available = sum(self.free.values())
        for place, i in enumerate(self.ready):
            if not available:
                left += self.ready[place:]
                break
            task = self.tasks[i]
            worker = next((w for w in (task.on or self.free) if self.free.get(w)), None)
            if worker is None:
                left.append(i)
                continue
            available -= 1
            self.free[worker] -= 1
            self._start(now, i, worker)
        self.ready = left

    def _start(self, now: float, i: int, worker: int) -> None:
        task, cluster = self.tasks[i], self.cluster
        self.scheduler = max(self.scheduler, now) + cluster.dispatch_s
        start = self.scheduler + cluster.gap_s + task.transfer
        stop = start + task.seconds * cluster.slower.get(worker, 1.0)
        soft = bool(task.on) and not task.pinned
        spans = [self.rows[need]["span"] for need in task.needs]
        self.rows[i] = {
            **{"key": f"{task.name}-{i}", "prefix": task.name, "group": task.name},
            **{"worker": address(worker), "index": worker, "thread": self.threads[worker].pop(), "graph": task.graph},
            **{"runnable": self.known[i], "assigned": self.known[i] if soft else self.scheduler},
            **{"start": start, "stop": stop, "done": stop, "span": stop - start + max(spans, default=0.0)},
            "nbytes": task.nbytes,
            "transfer": task.transfer,
            "allowed": len(task.on) if task.pinned else 0,
        }
        self._at(stop, "ended", i)


MOMENTS = ("time", "runnable", "assigned", "start", "stop", "done", "joined", "left")


def _columns(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    absolute = [
        {name: value + EPOCH if name in MOMENTS and (value or name != "left") else value for name, value in row.items()}
        for row in rows
    ]
    return from_rows(table, absolute)


def find(observation: Observation) -> dict[str, Finding]:
    """All findings of a trial by code; those in `NOTEWORTHY` must explain a tenth of the worker time."""
    return findings_of(observation, bounded=NOTEWORTHY)


def standing(on: Cluster, standstill: Standstill, finished: Sequence[Task] = ()) -> Observation:
    """A trial that stood still until its time limit, after these tasks had finished."""
    facts = {STANDSTILL: json.loads(json.dumps(standstill.to_mapping()))}
    given = {"state": TrialState.INVALID, "reason": "timed out", "facts": facts, "metrics": None}
    return on.run(finished, **given) if finished else on.observe([], **given)


def in_turn(count: int, at: float = 0.01, **given: Any) -> list[Graph]:
    """Graphs that are each sent `at` seconds after the tasks of the one before have ended."""
    return [Graph(after=i - 1, at=at, **given) if i else Graph(**given) for i in range(count)]


def paused(worker: int, begin: float, end: float) -> list[tuple[float, str, dict[str, str]]]:
    """Events of a worker that pauses from one moment to another."""
    change = {"action": "worker-status-change"}
    return [
        (begin, address(worker), change | {"prev-status": "running", "status": "paused"}),
        (end, address(worker), change | {"prev-status": "paused", "status": "running"}),
    ]


def with_tables(
    run: Observation, memory: Sequence[Any] = (), fine: Sequence[Any] = (), limit: float = 400 * 2.0**20, **facts: Any
) -> Observation:
    """The same trial with rows of the tables memory (worker, time, other columns) and fine_metrics."""
    rows = [{"worker": address(worker), "time": EPOCH + time, **rest} for worker, time, rest in memory]
    names = ("context", "prefix", "activity", "unit", "value")
    tables = {
        **run.tables,
        "workers": {**run.tables["workers"], "memory_limit": [int(limit)] * len(run.tables["workers"]["worker"])},
        "memory": from_rows("memory", rows),
        "fine_metrics": from_rows("fine_metrics", [dict(zip(names, row, strict=True)) for row in fine]),
    }
    return observed(replace(run.trial, facts=facts), tables)
