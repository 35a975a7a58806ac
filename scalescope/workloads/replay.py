"""`replay`: the graph of a recorded trial, with sleeps in place of what its tasks did."""

from __future__ import annotations

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
    recorded = RecordedGraph.read(graph)
    recorded = recorded if tasks is None else recorded.first(tasks)
    workers, last_use = sorted(client.nthreads()), last_uses(recorded)
    token = uuid.uuid4().hex
    last = len(recorded.tasks) - 1  # of tasks that are equal otherwise, dask puts the one with the last key first
    names = [f"{recorded.stages[task.stage]}-{token}-{last - i:06d}" for i, task in enumerate(recorded.tasks)]
    futures: dict[int, Any] = {}
    sent: dict[int, list[Any]] = {}
    waiting = iter(enumerate(recorded.submissions))
    for number, part in parts(recorded):
        while number not in sent:
            index, submission = next(waiting)
            client.gather(sent.get(submission.after, []))
            time.sleep(submission.pause_s * scale)
            sent[index] = []
        allowed = recorded.tasks[part.start].allowed
        confined = workers[:allowed] if 0 < allowed < len(workers) else None
        tasks_sent = {names[i]: _arguments(recorded, i, part, scale, names, futures) for i in part}
        if any(need in part for i in part for need in recorded.tasks[i].needs):
            wanted = [i for i in part if last_use[i] < 0 or last_use[i] >= part.stop]
            piece = {name: (nap, *arguments) for name, arguments in tasks_sent.items()}
            results = client.get(piece, [names[i] for i in wanted], workers=confined, sync=False)
        else:  # as it keeps their order
            wanted = list(part)
            results = client.map(nap, *zip(*tasks_sent.values(), strict=True), key=list(tasks_sent), workers=confined)
        futures.update(zip(wanted, results, strict=True))
        sent[number] += results
    check(dict(zip(futures, client.gather(list(futures.values())), strict=True)))
    return {"tasks": len(recorded.tasks), "submissions": len(recorded.submissions)}


def nap(number: int, seconds: float, needs: Sequence[int]) -> int:
    time.sleep(seconds)
    return number


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
    recorded: RecordedGraph, number: int, part: range, scale: float, names: Sequence[str], futures: Mapping[int, Any]
) -> tuple[Any, ...]:
    task = recorded.tasks[number]
    return (number, task.seconds * scale, [names[need] if need in part else futures[need] for need in task.needs])


WORKLOAD = workload(NAME, stresses="what the recorded trial stressed", packages=("dask",), modelled=True)(run)
