"""Finds the peak memory of planned tasks by running them with Dask's own scheduler on a virtual clock."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from scalescope.checking.checked import PeakMemory
from scalescope.errors import DriverError
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.workloads.replay import replay

if TYPE_CHECKING:
    from distributed import Client

    from scalescope.checking.graph import TaskGraph

MOST = 5_000  # most tasks of a graph that is scheduled; scheduling takes a second for about 500 tasks
TASK_S, RATE = 0.02, 500e6  # assumed duration of a task: seconds, plus its input and output at this many bytes a second
LONGEST_S = 120.0  # time limit of scheduling, in real seconds
NAME = "scalescope.checking.peak_memory:held"


def recorded(graph: TaskGraph, nbytes: Any) -> RecordedGraph:
    """The graph with result sizes and assumed durations; tasks are in Dask's order of priority."""
    import dask.order
    from dask.utils import key_split

    priority = dask.order.order(dict(zip(graph.keys, graph.nodes, strict=True)))
    order = sorted(range(len(graph)), key=lambda task: priority[graph.keys[task]])
    number = {task: place for place, task in enumerate(order)}
    names, code = graph.names
    first, needs, layer = graph.first.tolist(), graph.needs.tolist(), code.tolist()
    tasks = []
    for task in order:
        needed = needs[first[task] : first[task + 1]]
        moved = nbytes[task] + sum(nbytes[each] for each in needed)
        seconds = TASK_S + moved / RATE if graph.works[task] else 0.0
        tasks.append(
            RecordedTask(layer[task], seconds, tuple(number[each] for each in needed), nbytes=int(nbytes[task]))
        )
    return RecordedGraph(tuple(key_split(name) for name in names), tuple(tasks), gathered=False)


class _Held(SchedulerPlugin):  # type: ignore[misc]
    """Notes the most bytes of results that all workers, and a single worker, hold at once."""

    name = "scalescope-held"

    def __init__(self) -> None:
        self.all = self.fullest = 0

    async def start(self, scheduler: Any) -> None:
        self._workers = scheduler.workers

    def transition(self, key: Any, start: str, finish: str, *others: Any, **named: Any) -> None:
        if finish == "memory":
            held = [worker.nbytes for worker in self._workers.values()]
            self.all, self.fullest = max(self.all, sum(held)), max(self.fullest, *held)


def held(client: Client, *, graph: str) -> dict[str, Any]:
    """The most bytes that workers hold while a planned graph runs."""
    client.register_plugin(_Held())
    replay.run(client, graph=graph)
    return client.run_on_scheduler(_told)  # type: ignore[no-any-return]


def _told(dask_scheduler: Any) -> dict[str, Any]:
    plugin = dask_scheduler.plugins["scalescope-held"]
    return {"nbytes": plugin.all, "fullest": plugin.fullest}


@contextmanager
def scheduling() -> Iterator[Callable[[RecordedGraph, int, int], PeakMemory]]:
    """Yields a function (graph, workers, threads per worker) that schedules a planned graph."""
    from scalescope.clusters.simulated.spec import SimulatedSpec
    from scalescope.driver.process import Driver

    with tempfile.TemporaryDirectory(prefix="scalescope-check-") as folder:
        path, counted = Path(folder, "graph.json"), count()

        def schedule(planned: RecordedGraph, workers: int, threads: int) -> PeakMemory:
            path.write_text(planned.to_json())
            trial = PlannedTrial(next(counted), Point(workers, threads, {"graph": str(path)}), 0)
            outcome = driver.run(trial, NAME, timeout_s=LONGEST_S)
            if outcome.result is None:
                raise DriverError("the planned graph could not be scheduled", cause=outcome.reason)
            return PeakMemory(workers, threads, outcome.result["nbytes"], outcome.result["fullest"])

        with Driver.start(SimulatedSpec(task_cost="none"), folder=Path(folder, "driver")) as driver:
            yield schedule
