"""`replay` runs the graph of a recorded trial; tasks sleep instead of working.

Results report the recorded size without holding data. Two things are not recorded but assumed: if the client fetched
results, these were the results that no other task needs; in a peer-to-peer shuffle, each sending task gives an equal
part of its inputs to each worker with outputs.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.recorded_graph import BARRIER, RecordedGraph
from scalescope.workloads._common import wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "replay"
SLICES = 20  # parts into which a task's sleep is cut; before each, the tasks computing on the worker are counted


@workload(NAME, version=10, stresses="what the recorded trial stressed", packages=("dask",), modelled=True)
def replay(
    client: Client,
    *,
    graph: Annotated[str, Parameter("File of the graph, as `scalescope isolate` writes it.")],
    tasks: Annotated[int | None, Parameter("Number of first tasks to run; null is all.", minimum=1)] = None,
    scale: Annotated[float, Parameter("Factor on all durations and pauses.", minimum=0)] = 1.0,
    draw: Annotated[
        int, Parameter("Seed for the order of equal tasks and for the times of work stealing.", minimum=0)
    ] = 0,
) -> dict[str, Any]:
    """The graph of a recorded trial, with sleeps of the recorded durations."""
    recorded = RecordedGraph.read(graph)
    recorded = recorded if tasks is None else recorded.first(tasks)
    token = [uuid.uuid4().hex for _ in range(draw + 1)][-1]
    _Sender(client, recorded, scale, token).send_all()
    return {"tasks": len(recorded.tasks), "submissions": len(recorded.submissions)}


class _Sender:
    """Sends the submissions of a recorded graph as their client did."""

    def __init__(
        self,
        client: Client,
        recorded: RecordedGraph,
        scale: float,
        token: str,
        *,
        compute: Callable[[float], None] | None = None,
    ) -> None:
        self._client, self._recorded, self._scale, self._token = client, recorded, scale, token
        self._compute = compute or time.sleep
        self._outputs = outputs(recorded)
        by_worker = self._outputs or any(task.allowed for task in recorded.tasks)
        self._workers = sorted(client.nthreads()) if by_worker else []
        self._places = confinements(recorded, len(self._workers))
        # Output tasks of a shuffle (`first_s` > 0) are sent unrestricted; their first run restricts them to a worker.
        self._confined = [None if task.first_s else own for task, own in zip(recorded.tasks, self._places, strict=True)]
        self._parts, self._last_use = parts(recorded, self._confined), last_uses(recorded)
        last = len(recorded.tasks) - 1  # names count down, because Dask runs the task with the last key first
        final = len(recorded.stages) - 1
        groups = [f"{prefix}-{self._token}-{final - number:06d}" for number, prefix in enumerate(recorded.stages)]
        self._names = [(groups[task.stage], f"{last - i:06d}") for i, task in enumerate(recorded.tasks)]
        self._needed: dict[int, set[int]] = {}  # numbers of needed pieces of scattered data, by submission
        for task in recorded.tasks:
            self._needed.setdefault(task.submission, set()).update(task.scattered)
        self._sent: dict[int, list[int]] = {}  # numbers of tasks already sent, by submission
        self._futures: dict[int, Any] = {}  # futures of tasks, by number
        self._pieces: dict[int, Any] = {}  # futures of scattered data, by number
        self._unseen = {i for i, use in enumerate(self._last_use) if use < 0} if recorded.gathered else set[int]()

    def send_all(self) -> None:
        """Send all submissions, and wait until their tasks have ended."""
        if self._recorded.window:
            self._keep_running(self._recorded.window)
        else:
            self._send_phases()
        self._wait(list(self._futures))
        self._fetch(list(self._futures))

    def _keep_running(self, count: int) -> None:
        numbers = range(len(self._recorded.submissions))
        ended, running = _Ended(self._client, numbers), 0
        for number in numbers:
            told = ended.wait() if running >= count else []
            self._send(number, [i for each in told for i in self._sent[each]])
            ended.expect(number, [self._futures[i] for i in self._sent[number]])
            running += 1 - len(told)

    def _send_phases(self) -> None:
        recent: list[int] = []  # tasks of the previous phase
        for first, *others in phases(self._recorded):
            ready, waiting = [(first, recent)], dict[int, list[Turn]]()
            for turn in others:
                waiting.setdefault(turn.after, []).append(turn)
            ended, recent = _Ended(self._client, waiting.keys()), []
            while ready or waiting:
                possible = next((each for each in ready if each[0].needs <= self._sent.keys()), None)
                if possible is None:
                    for number in ended.wait():  # submissions, in the order in which they end
                        ready += [(turn, self._sent[number]) for turn in waiting.pop(number)]
                    continue
                ready.remove(possible)
                turn, after = possible
                for number in turn.numbers:
                    self._send(number, after)
                    ended.expect(number, [self._futures[i] for i in self._sent[number]])
                    recent += self._sent[number]
                    after = []

    def _send(self, number: int, after: Sequence[int]) -> None:
        """Send submission `number` once the tasks `after` have ended."""
        submission, recorded, self._sent[number] = self._recorded.submissions[number], self._recorded, []
        self._wait(after)
        began = time.monotonic()
        self._fetch(after)
        self._scatter(self._needed.get(number, set()) - self._pieces.keys())
        missing_s = submission.waited_s * self._scale - (time.monotonic() - began)
        if missing_s > 0:
            self._client.sync(asyncio.sleep, missing_s)  # `sync` is recorded as waiting of the client
        self._compute(submission.pause_s * self._scale)
        for part in self._parts.get(number, ()):
            confinement = self._confined[part.start]
            confined = self._workers[confinement.start : confinement.stop] if confinement else None
            calls = {self._names[i]: self._arguments(i, part) for i in part}
            if any(need in part for i in part for need in recorded.tasks[i].needs):
                wanted = [i for i in part if self._last_use[i] < 0 or self._last_use[i] >= part.stop]
                piece = {name: (nap, *arguments) for name, arguments in calls.items()}
                results = self._client.get(piece, [self._names[i] for i in wanted], workers=confined, sync=False)
            else:  # client.map keeps the order of arguments
                wanted = list(part)
                results = self._client.map(nap, *zip(*calls.values(), strict=True), key=list(calls), workers=confined)
            self._futures.update(zip(wanted, results, strict=True))
            self._sent[number] += wanted

    def _wait(self, numbers: Sequence[int]) -> None:
        from distributed import wait

        if numbers:
            with self._client.as_current():
                wait([self._futures[i] for i in numbers])

    def _fetch(self, numbers: Sequence[int]) -> None:
        """Fetch those results of these tasks that no other task needs."""
        found = [i for i in numbers if i in self._unseen]
        if found:  # an empty request would also cost a round trip
            self._unseen.difference_update(found)
            check(dict(zip(found, self._client.gather([self._futures[i] for i in found]), strict=True)))

    def _scatter(self, pieces: Collection[int]) -> None:
        for everywhere in (False, True):
            new = {
                f"scattered-{self._token}-{piece}": SizedResult.of(-1 - piece, self._recorded.scattered[piece].nbytes)
                for piece in sorted(pieces)
                if self._recorded.scattered[piece].everywhere is everywhere
            }
            if new:
                found = self._client.scatter(new, broadcast=everywhere, hash=False)
                self._pieces.update({int(name.rpartition("-")[2]): future for name, future in found.items()})

    def _arguments(self, number: int, part: range) -> tuple[Any, ...]:
        """Arguments of `nap` for task `number`, which is submitted with the tasks of `part`."""
        task, recorded = self._recorded.tasks[number], self._recorded
        needs = [self._names[need] if need in part else self._futures[need] for need in task.needs]
        needs += [self._pieces[piece] for piece in task.scattered]
        cpu_share = recorded.cpu[task.stage] if recorded.cpu else 1.0
        sends = _Sends(task.sends, self._scale, f"{self._token}_{number}", task.secedes) if task.sends else None
        count, receivers = len(self._workers), min(self._outputs.get(number, 0), len(self._workers))
        targets = [self._workers[i * count // receivers] for i in range(receivers)]
        place, first = self._places[number], None
        if task.first_s and place is not None:
            first = self._workers[place.start], task.first_s * self._scale
        seconds, shares = task.seconds * self._scale, recorded.shares_cores
        return number, seconds, task.nbytes, cpu_share, needs, sends, targets, first, shares


@dataclass(frozen=True)
class _Sends:
    """A graph that a task sends, and how."""

    graph: RecordedGraph
    scale: float
    token: str
    secedes: bool


class SizedResult(int):
    """The number of a task, whose `sizeof` is the recorded size of the task's result."""

    nbytes = 0

    @classmethod
    def of(cls, number: int, nbytes: int) -> SizedResult:
        result = cls(number)
        result.nbytes = nbytes
        return result

    def __sizeof__(self) -> int:
        return self.nbytes


def nap(
    number: int,
    seconds: float,
    nbytes: int,
    cpu_share: float,
    needs: Sequence[SizedResult],
    sends: _Sends | None = None,
    targets: Sequence[str] = (),
    first: tuple[str, float] | None = None,
    shares_cores: bool = False,
) -> SizedResult:
    """Sleep; a simulated cluster counts the part `cpu_share` (0 to 1) of these seconds as time on a core.

    The inputs are divided among the workers in `targets`. `first`: an address and seconds; on any other worker, the
    task sleeps these seconds and is then rescheduled to that address. `shares_cores`: see `RecordedGraph`.
    """
    from distributed import worker_client
    from distributed.worker import thread_state

    thread_state.cpu_share, compute = cpu_share, compute_with_others if shares_cores else time.sleep
    if first is not None:
        _go_to(*first)
    if sends is not None:
        with worker_client(separate_thread=sends.secedes) as client:
            while client.status in ("newly-created", "connecting"):  # another task is opening this worker's client
                time.sleep(0.001)
            _Sender(client, sends.graph, sends.scale, sends.token, compute=compute).send_all()
    compute(seconds)
    if targets:
        _send_parts(needs, targets)
    return SizedResult.of(number, nbytes)


def compute_with_others(seconds: float) -> None:
    """Sleep, longer if more tasks compute on this worker than it has threads, as if there were a core per thread."""
    from distributed import get_worker

    worker = get_worker()
    computing: set[int] = vars(worker).setdefault("scalescope_computing", set())
    computing.add(threading.get_ident())
    try:
        for _ in range(SLICES):
            time.sleep(seconds / SLICES * max(len(computing) / worker.state.nthreads, 1.0))
    finally:
        computing.discard(threading.get_ident())


def _go_to(address: str, seconds: float) -> None:
    """Move this task to the worker at `address`, like an output of a peer-to-peer shuffle."""
    from distributed import Reschedule, get_worker
    from distributed.utils import sync
    from distributed.worker import thread_state

    worker = get_worker()
    if worker.address != address:
        time.sleep(seconds)
        sync(worker.loop, worker.scheduler.set_restrictions, worker={thread_state.key: [address]})
        raise Reschedule


def _send_parts(data: Sequence[SizedResult], targets: Sequence[str]) -> None:
    """Send an equal part of the data to each worker in `targets` except this one, in parallel."""
    from distributed import get_worker
    from distributed.utils import sync

    worker, part = get_worker(), SizedResult.of(0, sum(each.nbytes for each in data) // len(targets))

    async def send() -> None:
        await asyncio.gather(*(worker.rpc(target).echo(data=part) for target in targets if target != worker.address))

    sync(worker.loop, send)


def outputs(recorded: RecordedGraph) -> dict[int, int]:
    """For each sending task of a peer-to-peer shuffle, the number of tasks that receive its parts."""
    found, using = dict[int, int](), Counter(need for task in recorded.tasks for need in task.needs)
    for number, task in enumerate(recorded.tasks):
        if recorded.stages[task.stage] == BARRIER:
            found.update(dict.fromkeys(task.needs, using[number]))
    return found


def confinements(recorded: RecordedGraph, workers: int) -> list[range | None]:
    """For each task, the numbers of the workers that may run it; None if any worker may.

    Restricted tasks of a stage in `recorded.spread` are divided among all workers, as in a shuffle; other restricted
    tasks get the first workers.
    """
    left = Counter(task.stage for task in recorded.tasks if task.allowed)
    whole, found = left.copy(), list[range | None]()
    for task in recorded.tasks:
        first = 0
        if task.allowed and task.stage in recorded.spread:
            first = (whole[task.stage] - left[task.stage]) * workers // whole[task.stage]
        left[task.stage] -= 1
        last = min(first + task.allowed, workers)
        found.append(range(last - task.allowed, last) if 0 < task.allowed < workers else None)
    return found


def parts(recorded: RecordedGraph, confined: Sequence[range | None]) -> dict[int, list[range]]:
    """Ranges of tasks by submission, cut where the allowed workers change; each range is sent by one call."""

    def sent_with(number: int) -> tuple[int, range | None]:
        return recorded.tasks[number].submission, confined[number]

    found: dict[int, list[range]] = {}
    for (submission, _), group in groupby(range(len(recorded.tasks)), sent_with):
        members = list(group)
        found.setdefault(submission, []).append(range(members[0], members[-1] + 1))
    return found


@dataclass(frozen=True)
class Turn:
    """Submissions that a client sent one after the other."""

    numbers: tuple[int, ...]
    after: int  # submission whose end the client waited for; -1: none
    needs: frozenset[int]  # earlier submissions whose results these submissions need


def phases(recorded: RecordedGraph) -> list[list[Turn]]:
    """All phases, each a list of turns; a phase begins when all tasks of the previous phase have ended."""
    needs: dict[int, set[int]] = {}
    for task in recorded.tasks:
        needs.setdefault(task.submission, set()).update(recorded.tasks[need].submission for need in task.needs)
    found: list[list[list[int]]] = []  # numbers of submissions
    begin = after = -1  # first submission of the phase; submission that the present turn waits for
    for number, submission in enumerate(recorded.submissions):
        if not number or submission.after_all:
            begin, after = number, submission.after
            found.append([[number]])
        elif submission.after >= begin and submission.after != after:
            after = submission.after
            found[-1].append([number])
        else:
            found[-1][-1].append(number)

    def turn(numbers: Sequence[int]) -> Turn:
        needed = set[int]().union(*(needs.get(number, ()) for number in numbers))
        return Turn(tuple(numbers), recorded.submissions[numbers[0]].after, frozenset(needed.difference(numbers)))

    return [[turn(numbers) for numbers in phase] for phase in found]


class _Ended:
    """Watches the submissions that other submissions wait for, and tells which have ended."""

    def __init__(self, client: Client, awaited: Collection[int]) -> None:
        from distributed import as_completed

        self._awaited = awaited
        self._futures = as_completed(loop=client.loop)
        self._number: dict[Any, int] = {}  # submission by task key
        self._left: dict[int, int] = {}  # unfinished tasks by submission
        self._ended: list[int] = []  # ended submissions that `wait` has not returned yet

    def expect(self, number: int, futures: Sequence[Any]) -> None:
        if number in self._awaited:
            self._left[number] = len(futures)
            self._ended += [number] if not futures else []
            self._number.update((future.key, number) for future in futures)
            self._futures.update(futures)

    def wait(self) -> list[int]:
        """The submissions that have ended since the last call; if there are none, wait for a batch of tasks first."""
        if not self._ended:
            for future in self._futures.next_batch():
                number = self._number[future.key]
                self._left[number] -= 1
                self._ended += [number] if not self._left[number] else []
        told, self._ended = self._ended, []
        return told


def last_uses(recorded: RecordedGraph) -> list[int]:
    """For each task, the number of the last task that needs it, or -1."""
    found = [-1] * len(recorded.tasks)
    for number, task in enumerate(recorded.tasks):
        for need in task.needs:
            found[need] = number
    return found


def check(results: Mapping[int, int]) -> None:
    for number, result in results.items():
        if result != number:
            raise wrong(f"task {number} returned {result!r}")
