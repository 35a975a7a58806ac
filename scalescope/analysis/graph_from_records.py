"""Rebuilds a trial's graph from its records, to run it again without the code of its tasks."""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats
from scalescope.analysis.events import Tables, Waits, fine_seconds, task_waits, told
from scalescope.analysis.inside_tasks import thread_seconds
from scalescope.analysis.ledger import integral
from scalescope.analysis.scattered import Scattered, scattered_data
from scalescope.analysis.shared_cores import Work, work_by_worker
from scalescope.errors import CaptureError
from scalescope.model.recorded_graph import BARRIER, RecordedGraph, RecordedTask, ScatteredData, Submission
from scalescope.model.records import OTHER_CLUSTER, STATUS_FINISHED, STATUS_LOST

MOST_TASKS = 50_000  # largest graph that is replayed, in about two minutes
CLIENT, LOST = -1, -2  # senders: the client, and a task whose result was lost
PROMPT = 0.2  # a client that sends within this share of the mean time between ends of tasks reacted to an end
STEADY, ROUNDS = 0.8, 4  # least share of rounds with a full window, and least rounds, for the client to have a window
SAMPLED_S = 0.1  # longest time, in seconds, between two samples of the client's thread, except on a virtual clock


def recorded_graph(tables: Tables, *, nested: bool = True, virtual: bool = False) -> RecordedGraph:
    """The tasks of a trial, with dependencies, restrictions and submissions.

    A task that was repeated because its worker died occurs once; a task that the client sent again occurs twice. Tasks
    that another task sent become a nested graph if that task outlasts them and no other task needs them. Otherwise, or
    if `nested` is False, they belong to the client's previous submission. `virtual`: the trial had a virtual clock.
    """
    rows = _finished(tables)
    if not rows:
        raise CaptureError("no task finished")
    if len(rows) > MOST_TASKS:
        raise CaptureError(
            f"{len(rows):,} tasks are too many to be replayed", next_step=f"replay at most {MOST_TASKS:,} tasks"
        )
    if not _known(tables, rows):
        raise CaptureError("the dependencies of the trial's tasks were not recorded")
    needs = _needs(tables, set(rows))
    found = _Senders.read(tables, rows, needs, virtual=virtual)
    graph, _ = (found if nested and found.separate else found.merged()).graph(CLIENT)
    return graph


@dataclass(frozen=True)
class _Program:
    """A client or a task that sends tasks."""

    begin: float  # seconds since the epoch
    end: float
    work: Work
    waited_s: Callable[[float], float]  # function of time: seconds waited for its tasks so far
    waited_work_s: Callable[[float], float]  # function of time: core-seconds available during these waits
    # whether the program may have waited before each submission except the first, and before its end
    awaits: Sequence[bool]

    def own_s(self, since: float, until: float) -> float:
        """Seconds between two times for which the program computed."""
        waited_s = self.waited_work_s(until) - self.waited_work_s(since)
        return _rounded(self.work(until) - self.work(since) - waited_s)


@dataclass(frozen=True)
class _Senders:
    """Tasks grouped by sender: `CLIENT`, or the row of the task that sent them."""

    tables: Tables
    needs: Mapping[int, Sequence[int]]
    times: Sequence[float]  # arrival time of each graph
    sent: Mapping[int, int]  # index in `times` of the graph of each task, by row
    rows: Mapping[int, Sequence[int]]  # rows of tasks by sender
    scattered: Scattered
    waits: Mapping[int, Waits]  # waits of tasks that send tasks, by row
    work: Mapping[str, Work]  # `Work` of the workers whose cores were shared by more tasks than threads
    virtual: bool
    window: int = 0  # number of tasks that the client kept running by sending one for each that ended; or 0

    @classmethod
    def read(
        cls, tables: Tables, rows: Sequence[int], needs: Mapping[int, Sequence[int]], *, virtual: bool
    ) -> _Senders:
        tasks, graphs = tables["tasks"], tables.get("graphs", {})
        times = [float(time) for time in graphs.get("time", ())] or [0.0]
        numbers = tasks.get("graph", [0] * len(tasks["key"]))
        if len(times) > 1 and not any(numbers):
            raise CaptureError(
                "the records do not say which graph each task came with",
                cause="the trial was measured by an older version of Scalescope",
                next_step="measure the trial again",
            )
        sent = {row: max(int(numbers[row]) - 1, 0) for row in rows}  # numbers begin at 1; 0: sent before the trial
        by_key = {tasks["key"][row]: row for row in rows}
        senders = [by_key.get(key, LOST) if key else CLIENT for key in graphs.get("task", [""] * len(times))]
        by_sender: dict[int, list[int]] = {CLIENT: []}
        for row in rows:
            by_sender.setdefault(senders[sent[row]], []).append(row)
        waits = task_waits(tables)
        work = work_by_worker(tables, rows, waits)
        found = cls(tables, needs, times, sent, by_sender, scattered_data(tables), waits, work, virtual)
        return found if len(by_sender) > 1 else found._one_by_one()

    def _one_by_one(self) -> _Senders:
        """A copy in which each task is a submission of its own, if the client kept a window of tasks running."""
        tasks, first_known = self.tables["tasks"], self.tables["tasks"]["runnable"]
        rows = sorted(self.sent, key=lambda row: (self.sent[row], first_known[row]))
        times = np.array([self.times[self.sent[row]] for row in rows])
        size = _window(times, np.sort([tasks["done"][row] for row in rows]))
        if not size or any(self.sent[need] == self.sent[row] for row in rows for need in self.needs[row]):
            return self
        return replace(self, times=times.tolist(), sent={row: i for i, row in enumerate(rows)}, window=size)

    def merged(self) -> _Senders:
        """A copy with the client as the only sender: graphs that tasks sent join the client's previous graph."""
        inner = {self.sent[row] for sender, rows in self.rows.items() if sender != CLIENT for row in rows}
        last = [0]
        for number in range(1, len(self.times)):
            last.append(last[-1] if number in inner else number)
        sent = {row: last[number] for row, number in self.sent.items()}
        return replace(self, sent=sent, rows={CLIENT: sorted(sent)})

    @property
    def separate(self) -> bool:
        """Whether tasks depend only on tasks of the same sender, and each sending task outlasted the tasks it sent."""
        stop = self.tables["tasks"]["stop"]
        for sender, own in self.rows.items():
            if sender != CLIENT and (sender not in self.sent or max(stop[row] for row in own) > stop[sender]):
                return False
            if not set(own).issuperset(need for row in own for need in self.needs[row]):
                return False
        return True

    def graph(self, sender: int) -> tuple[RecordedGraph, float]:
        """The graph of this sender, and the seconds that the sender computed after the graph had ended."""
        tables, tasks, sent = self.tables, self.tables["tasks"], self.sent
        rows = _in_order(tables, self.rows[sender], self.needs, sent)
        number = {row: i for i, row in enumerate(rows)}
        stages, stage = _stages([tasks["group"][row] for row in rows], [tasks["prefix"][row] for row in rows])
        sizes = tasks.get("nbytes", [0] * len(tasks["key"]))
        scattered, pieces = _scattered(self.scattered, rows)
        spread = _spread(tables, rows, stage)
        first = _first_attempts(tables) if spread else {}
        used = sorted({sent[row] for row in rows})
        renumbered = {old: new for new, old in enumerate(used)}
        inner = {row: self.graph(row) for row in rows if row in self.rows}

        def task(row: int) -> RecordedTask:
            own, prefix = stage[number[row]], tasks["prefix"][row]
            sends, seconds = inner[row] if row in inner else (None, self._seconds(row))
            return RecordedTask(
                stage=own,
                seconds=seconds,
                needs=tuple(sorted(number[need] for need in self.needs[row])),
                allowed=spread.get(own, int(tasks["allowed"][row])),
                submission=renumbered[sent[row]],
                nbytes=max(int(sizes[row]), 0),
                scattered=tuple(scattered.get(row, ())),
                sends=sends,
                secedes=sends is not None and not any(held for *_, held in self.waits.get(row, ())),
                first_s=first.get(prefix, 0.0) if own in spread and self._after_barrier(row) else 0.0,
            )

        *submissions, last = self._submissions(sender, rows, used)
        graph = RecordedGraph(
            stages=stages,
            tasks=tuple(map(task, rows)),
            submissions=tuple(submissions),
            cpu=_cpu_shares(tables, dict(zip(stage, [tasks["prefix"][row] for row in rows], strict=True))),
            gathered=sender != CLIENT or gathered(tables),
            scattered=pieces,
            spread=tuple(spread),
            shares_cores=bool(self.work),
            window=self.window,
        )
        return graph, last.pause_s

    def _seconds(self, row: int) -> float:
        """Seconds that a task would have taken with a core of its own."""
        tasks, work = self.tables["tasks"], self._work(row)
        return _rounded(work(float(tasks["stop"][row])) - work(float(tasks["start"][row])))

    def _work(self, sender: int) -> Work:
        return float if sender == CLIENT else self.work.get(self.tables["tasks"]["worker"][sender], float)

    def _after_barrier(self, row: int) -> bool:
        """Whether a task is an output of a peer-to-peer shuffle."""
        return any(word(self.tables["tasks"]["prefix"][need]) == BARRIER for need in self.needs[row])

    def _submissions(self, sender: int, rows: Sequence[int], used: Sequence[int]) -> Iterator[Submission]:
        """The submissions of this sender, and one more for the time from the last submission to the sender's end."""
        times = [self.times[number] for number in used]
        program = self._client(times) if sender == CLIENT else self._task(sender, times)
        ended = dict.fromkeys(used, 0.0)
        for row in rows:
            ended[self.sent[row]] = max(ended[self.sent[row]], float(self.tables["tasks"]["done"][row]))
        by_end = list[tuple[float, int]]()  # end and position of earlier submissions, sorted
        yield Submission(pause_s=program.own_s(program.begin, times[0]))
        for position, (before, time) in enumerate(pairwise([*times, program.end]), 1):
            insort(by_end, (ended[used[position - 1]], position - 1))
            waited = program.awaits[position - 1]
            last = bisect_right(by_end, (time, position)) - 1 if waited else -1  # last end before `time`, in `by_end`
            since, after = (before, -1) if last < 0 else (max(before, by_end[last][0]), by_end[last][1])
            pause_s = max(0.0, time - since)
            own_s = program.own_s(since, time) if pause_s else 0.0
            idle_s = min(program.waited_s(time) - program.waited_s(since), pause_s)
            yield Submission(after, own_s, _rounded(idle_s), last + 1 == position)

    def _client(self, times: Sequence[float]) -> _Program:
        """The client from its first submission to its last."""
        waited_s = waiting(self.tables) or (lambda _: 0.0)
        awaits = [*self._awaits(times), False]
        return _Program(times[0], times[-1], self._work(CLIENT), waited_s, waited_s, awaits)

    def _task(self, sender: int, times: Sequence[float]) -> _Program:
        """A task from its start to its end."""
        tasks, work, waits = self.tables["tasks"], self._work(sender), self.waits.get(sender, ())
        begin, end = float(tasks["start"][sender]), float(tasks["stop"][sender])
        waited_s = _waited(waits, float)
        awaits = [waited_s(time) > waited_s(before) for before, time in pairwise([*times, end])]
        return _Program(begin, end, work, waited_s, _waited(waits, work), awaits)

    def _awaits(self, times: Sequence[float]) -> list[bool]:
        """Whether the client may have waited before each graph except the first: it was seen to, or reacted to ends."""
        found = sent_after_waiting(self.tables, np.array(times), virtual=self.virtual)
        if (waited_s := waiting(self.tables)) is not None and len(times) > 1:
            done = np.sort(np.asarray(self.tables["tasks"]["done"], np.float64))
            last = np.searchsorted(done, times[1:], side="right") - 1
            since = np.where(last >= 0, times[1:] - done[np.maximum(last, 0)], np.inf)
            prompt_s = PROMPT * (done[-1] - done[0]) / len(done)
            # A client that sends a graph right after another one did not wait.
            found |= (since <= prompt_s) & (np.diff(times) > prompt_s) & (np.diff(list(map(waited_s, times))) > 0)
        return [bool(each) for each in found]


def _window(times: Floats, done: Floats) -> int:
    """Number of tasks that a client kept running by sending one for each that ended (`as_completed`); else 0.

    `times`: sending times in order; `done`: ends. A client that waits for all its tasks does not keep any running.
    """
    running = np.arange(1, len(times) + 1) - (ended := np.searchsorted(done, times, side="right"))
    begins = np.flatnonzero(np.diff(ended, prepend=0))  # indices of the first task sent after others had ended
    if len(begins) < ROUNDS:
        return 0
    size = int(begins[0])
    steady = (running[begins] > 1) & (running[np.append(begins[1:], len(times)) - 1] == size)
    return size if steady.mean() >= STEADY else 0


def _waited(waits: Waits, work: Work) -> Work:
    """A function of time: core-seconds available until then during the waits of a task."""
    return lambda time: sum(max(work(min(end, time)) - work(begin), 0.0) for begin, end, _ in waits)


def _scattered(found: Scattered, rows: Sequence[int]) -> tuple[dict[int, list[int]], tuple[ScatteredData, ...]]:
    """The pieces of scattered data that these tasks needed: their numbers by row, and the pieces."""
    by_row, own, number = dict[int, list[int]](), set(rows), dict[int, int]()
    for row, piece in zip(found.row.tolist(), found.piece.tolist(), strict=True):
        if row in own:
            by_row.setdefault(row, []).append(number.setdefault(piece, len(number)))
    return by_row, tuple(ScatteredData(found.nbytes[piece], found.workers[piece] > 1) for piece in number)


def _spread(tables: Tables, rows: Sequence[int], stages: Sequence[int]) -> dict[int, int]:
    """By stage, the most workers allowed to one of its restricted tasks; only stages that ran on more workers in all.

    Outputs of a shuffle are an example: each may run on one worker only, unless it was on the right one by chance.
    """
    allowed, ran_on = dict[int, int](), dict[int, set[str]]()
    for row, stage in zip(rows, stages, strict=True):
        if tables["tasks"]["allowed"][row]:
            allowed[stage] = max(int(tables["tasks"]["allowed"][row]), allowed.get(stage, 0))
            ran_on.setdefault(stage, set()).add(tables["tasks"]["worker"][row])
    return {stage: count for stage, count in allowed.items() if len(ran_on[stage]) > count}


def _first_attempts(tables: Tables) -> dict[str, float]:
    """Mean seconds, by prefix, of attempts that ended without a result, such as first attempts at shuffle outputs."""
    tasks, seconds = tables["tasks"], defaultdict[str, float](float)
    for _, prefix, activity, lost_s in fine_seconds(tables):
        if activity == "cancelled":
            seconds[prefix] += lost_s
    lost = Counter(
        prefix for prefix, status in zip(tasks["prefix"], tasks["status"], strict=True) if status == STATUS_LOST
    )
    return {prefix: _rounded(seconds[prefix] / count) for prefix, count in lost.items() if seconds[prefix] > 0}


def _finished(tables: Tables) -> list[int]:
    if STATUS_FINISHED not in tables.get("tasks", {"status": ()})["status"]:
        return []
    attempts = Attempts.read(tables)
    return sorted(attempts.row[attempts.useful].tolist())


def _known(tables: Tables, rows: Sequence[int]) -> bool:
    if len(tables.get("dependencies", {}).get("task", ())):
        return True
    # If the tasks really have no dependencies, no `span` exceeds the duration of its task.
    tasks = tables["tasks"]
    durations = {row: tasks["stop"][row] - tasks["start"][row] for row in rows}
    return all(tasks["span"][row] <= duration * (1 + 1e-6) + 1e-6 for row, duration in durations.items())


def _needs(tables: Tables, rows: set[int]) -> dict[int, list[int]]:
    keys = tables["tasks"]["key"]
    by_key = {keys[row]: row for row in sorted(rows)}
    needs: dict[int, set[int]] = {row: set() for row in rows}
    dependencies = tables.get("dependencies", {})
    for task, need in zip(dependencies.get("task", ()), dependencies.get("needs", ()), strict=True):
        row, needed = int(task), int(need)
        if needed not in rows:  # the result was lost with its worker: take the attempt that replaced it
            needed = by_key.get(keys[needed], row)
        if row in rows and needed != row:
            needs[row].add(needed)
    return {row: sorted(found) for row, found in needs.items()}


def _in_order(
    tables: Tables, rows: Sequence[int], needs: Mapping[int, Sequence[int]], sent: Mapping[int, int]
) -> list[int]:
    tasks = tables["tasks"]
    # Roughly the order of Dask's priorities: the scheduler receives tasks without needs in that order.
    turn = {row: tasks["start" if needs[row] else "runnable"][row] for row in rows}
    order = sorted(rows, key=lambda row: (sent[row], turn[row], tasks["start"][row], row))
    placed: set[int] = set()
    result: list[int] = []
    while order:
        left = []
        for row in order:
            if placed.issuperset(needs[row]):
                placed.add(row)
                result.append(row)
            else:
                left.append(row)
        if len(left) == len(order):
            raise CaptureError("the recorded tasks need each other in a circle", where="table dependencies")
        order = left
    return result


def sent_after_waiting(tables: Tables, times: Floats, *, virtual: bool) -> Bools:
    """Whether the client may have waited for a result before each graph except the first; `times`: arrivals of graphs.

    True if a task ended since the previous graph, and if since then the client fetched results, waited for longer than
    the sampling interval of its thread, or waited while no task was left. All True if the client was not recorded.
    """
    client, tasks = waiting(tables), tables["tasks"]
    if client is None:
        return np.ones(max(len(times) - 1, 0), bool)
    done, known = (np.sort(np.asarray(tasks[name], np.float64)) for name in ("done", "runnable"))
    ended = np.searchsorted(done, times, side="right")
    nothing_left = np.searchsorted(known, times[1:], side="left") == ended[1:]
    waited_s = np.diff([client(time) for time in times])
    waited = (waited_s > (0.0 if virtual else SAMPLED_S)) | (nothing_left & (waited_s > 0))
    fetched = np.sort([when for when, each in told(tables.get("events", {}), "all") if each.get("action") == "gather"])
    waited |= np.diff(np.searchsorted(fetched, times)) > 0
    found: Bools = waited & (np.diff(ended) > 0)
    return found


def waiting(tables: Tables) -> Callable[[float], float] | None:
    """A function of time: seconds that the client had waited for this cluster; None if the client was not recorded."""
    client = tables.get("client", {})
    if not len(client.get("time", ())):
        return None
    begin, seconds, waits = (np.asarray(client[name], np.float64) for name in ("time", "seconds", "waits"))
    here = [what != OTHER_CLUSTER for what in client.get("what") or [""] * len(begin)]
    edges, until = np.append(begin, begin[-1] + seconds[-1]), integral(seconds * waits * here)
    return lambda time: float(np.interp(time, edges, until))


def _cpu_shares(tables: Tables, prefixes: dict[int, str]) -> tuple[float, ...]:
    """Share of time on a core for each stage, from distributed's fine metrics; empty without them."""
    told = {prefix: (on, on + off) for prefix, (on, off) in thread_seconds(tables).items()}
    shares = {prefix: on / whole for prefix, (on, whole) in told.items() if whole > 0}
    return tuple(round(shares.get(prefixes[i], 1.0), 3) for i in range(len(prefixes))) if shares else ()


def gathered(tables: Tables) -> bool:
    """Whether the client fetched results through the scheduler; True if no events were recorded."""
    messages = tables.get("events", {}).get("message", ())
    return not len(messages) or any('"action": "gather"' in message for message in messages)


def _stages(groups: Sequence[str], prefixes: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """The prefix of each group, as one word that Dask keeps as prefix of a key; and the index of each task's group."""
    index: dict[str, int] = {}
    names: list[str] = []
    for group, prefix in zip(groups, prefixes, strict=True):
        if group not in index:
            index[group] = len(names)
            names.append(word(prefix))
    return tuple(names), [index[group] for group in groups]


def word(prefix: str) -> str:
    return re.sub(r"\W+", "_", prefix).strip("_") or "task"


def _rounded(seconds: float) -> float:
    return float(f"{max(seconds, 0.0):.3g}")  # more digits are noise, and would lengthen the script
