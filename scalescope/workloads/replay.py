"""`replay`: the graph of a recorded trial, with sleeps in place of what its tasks did.

Results say that they have the recorded size. The record does not tell which of them the client fetched: if it fetched
any, the replay fetches those that no other task needs.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.workloads._common import wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "replay"


def run(
    client: Client,
    *,
    graph: Annotated[str, Parameter("File of the graph, as `scalescope isolate` writes it.")],
    tasks: Annotated[int | None, Parameter("Only so many of its first tasks; null is all.", minimum=1)] = None,
    scale: Annotated[float, Parameter("Factor on all durations and pauses.", minimum=0)] = 1.0,
) -> dict[str, Any]:
    """The graph of a recorded trial, with sleeps of the recorded durations."""
    from distributed import wait

    recorded = RecordedGraph.read(graph)
    recorded = recorded if tasks is None else recorded.first(tasks)
    workers, last_use = sorted(client.nthreads()), last_uses(recorded)
    token = uuid.uuid4().hex
    last = len(recorded.tasks) - 1  # of tasks that are equal otherwise, dask puts the one with the last key first
    names = [f"{recorded.stages[task.stage]}-{token}-{last - i:06d}" for i, task in enumerate(recorded.tasks)]
    futures: dict[int, Any] = {}
    sent: dict[int, list[Any]] = {}
    unseen = {i for i, use in enumerate(last_use) if use < 0} if recorded.gathered else set()

    def fetch(numbers: Sequence[int]) -> float:
        with client.as_current():
            wait([futures[i] for i in numbers])
        began, found = time.monotonic(), [i for i in numbers if i in unseen]
        if found:  # an empty answer would travel as well
            unseen.difference_update(found)
            check(dict(zip(found, client.gather([futures[i] for i in found]), strict=True)))
        return time.monotonic() - began

    pieces: dict[int, Any] = {}
    needed: dict[int, set[int]] = {}
    for task in recorded.tasks:
        if task.scattered:
            needed.setdefault(task.submission, set()).update(task.scattered)

    def scatter(number: int) -> float:
        """Scatter what the tasks of a submission need and no task before them needed."""
        began = time.monotonic()
        for everywhere in (False, True):
            new = {
                f"scattered-{token}-{piece}": SizedResult.of(-1 - piece, recorded.scattered[piece].nbytes)
                for piece in sorted(needed.get(number, set()) - set(pieces))
                if recorded.scattered[piece].everywhere is everywhere
            }
            if new:
                found = client.scatter(new, broadcast=everywhere, hash=False)
                pieces.update({int(name.rpartition("-")[2]): future for name, future in found.items()})
        return time.monotonic() - began

    waiting = iter(enumerate(recorded.submissions))
    for number, part in parts(recorded):
        while number not in sent:
            index, submission = next(waiting)
            missing_s = submission.waited_s * scale - fetch(sent.get(submission.after, []))
            missing_s -= scatter(index)
            if missing_s > 0:
                client.sync(asyncio.sleep, missing_s)  # a client that waits, as a record shows it
            time.sleep(submission.pause_s * scale)
            sent[index] = []
        allowed = recorded.tasks[part.start].allowed
        confined = workers[:allowed] if 0 < allowed < len(workers) else None
        tasks_sent = {names[i]: _arguments(recorded, i, part, scale, names, futures, pieces) for i in part}
        if any(need in part for i in part for need in recorded.tasks[i].needs):
            wanted = [i for i in part if last_use[i] < 0 or last_use[i] >= part.stop]
            piece = {name: (nap, *arguments) for name, arguments in tasks_sent.items()}
            results = client.get(piece, [names[i] for i in wanted], workers=confined, sync=False)
        else:  # as it keeps their order
            wanted = list(part)
            results = client.map(nap, *zip(*tasks_sent.values(), strict=True), key=list(tasks_sent), workers=confined)
        futures.update(zip(wanted, results, strict=True))
        sent[number] += wanted
    fetch(list(futures))
    return {"tasks": len(recorded.tasks), "submissions": len(recorded.submissions)}


class SizedResult(int):
    """The number of a task, which says that it is as large as the recorded result."""

    nbytes = 0

    @classmethod
    def of(cls, number: int, nbytes: int) -> SizedResult:
        result = cls(number)
        result.nbytes = nbytes
        return result

    def __sizeof__(self) -> int:
        return self.nbytes


def nap(number: int, seconds: float, nbytes: int, cpu_share: float, needs: Sequence[int]) -> SizedResult:
    """Sleep; `cpu_share` is the part of these seconds for which a simulated cluster takes the task to be on a core."""
    from distributed.worker import thread_state

    thread_state.cpu_share = cpu_share
    time.sleep(seconds)
    return SizedResult.of(number, nbytes)


def parts(recorded: RecordedGraph) -> list[tuple[int, range]]:
    """Submissions and their tasks, cut where the restriction changes: each part is sent by itself."""

    def sent_with(number: int) -> tuple[int, int]:
        return recorded.tasks[number].submission, recorded.tasks[number].allowed

    found = []
    for (submission, _), group in groupby(range(len(recorded.tasks)), sent_with):
        members = list(group)
        found.append((submission, range(members[0], members[-1] + 1)))
    return found


def last_uses(recorded: RecordedGraph) -> list[int]:
    """For each task the last one that needs it, or -1."""
    found = [-1] * len(recorded.tasks)
    for number, task in enumerate(recorded.tasks):
        for need in task.needs:
            found[need] = number
    return found


def check(results: Mapping[int, int]) -> None:
    for number, result in results.items():
        if result != number:
            raise wrong(NAME, f"task {number} returned {result!r}")


def _arguments(
    recorded: RecordedGraph,
    number: int,
    part: range,
    scale: float,
    names: Sequence[str],
    futures: Mapping[int, Any],
    pieces: Mapping[int, Any],
) -> tuple[Any, ...]:
    task = recorded.tasks[number]
    needs = [names[need] if need in part else futures[need] for need in task.needs]
    needs += [pieces[piece] for piece in task.scattered]
    return number, task.seconds * scale, task.nbytes, recorded.cpu[task.stage] if recorded.cpu else 1.0, needs


WORKLOAD = workload(NAME, version=3, stresses="what the recorded trial stressed", packages=("dask",), modelled=True)(
    run
)
