"""The graph of a recorded trial as a file, to be run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model.mapping import from_mapping

FORMAT = 1
BARRIER = "shuffle_barrier"  # stage of the task that ends when all parts of a peer-to-peer shuffle have arrived


@dataclass(frozen=True)
class RecordedTask:
    """One task of a recorded graph."""

    stage: int  # number of its task group
    seconds: float  # seconds of computing; for a task that sends tasks, only the seconds after the last of these ended
    needs: tuple[int, ...] = ()  # numbers of the tasks whose results this task needs; all smaller than its own number
    allowed: int = 0  # number of workers to which a restriction confined the task; 0: any worker may run it
    submission: int = 0  # number of the submission with which the task came
    nbytes: int = 0  # bytes of the task's result
    scattered: tuple[int, ...] = ()  # numbers of the scattered data that this task needs
    sends: RecordedGraph | None = None  # graph that the task itself sends, and waits for
    secedes: bool = False  # True if the task gives up its thread while it waits for `sends`
    # seconds of the first attempt at a shuffle's output; any worker may make it, to learn where the output must run
    first_s: float = 0.0


@dataclass(frozen=True)
class ScatteredData:
    """A piece of data that no task made."""

    nbytes: int
    everywhere: bool = False  # True if all workers had it from the beginning


@dataclass(frozen=True)
class Submission:
    """One `submit`, `map` or `compute` of a client."""

    after: int = -1  # number of the submission for whose results the client may have waited; -1: none
    # Seconds from the end of `after` or from the previous submission, whichever is later, to this submission: `pause_s`
    # of the client's own work, `waited_s` of its waits for the cluster. Unexplained time counts as work.
    pause_s: float = 0.0
    waited_s: float = 0.0
    after_all: bool = False  # True if all submissions before it had ended


@dataclass(frozen=True)
class RecordedGraph:
    """Graph of tasks that a trial ran."""

    stages: tuple[str, ...]  # prefix of each task group
    tasks: tuple[RecordedTask, ...]  # tasks ordered by submission, then by start
    submissions: tuple[Submission, ...] = (Submission(),)  # submissions in their order
    # share of each stage's seconds in which its threads were on a core, 1 if unknown; empty: unknown for all
    cpu: tuple[float, ...] = ()
    gathered: bool = True  # True if the client fetched results
    scattered: tuple[ScatteredData, ...] = ()
    spread: tuple[int, ...] = ()  # stages whose restricted tasks were confined to different workers
    shares_cores: bool = False  # True if tasks slow down while a worker computes more of them than it has threads
    window: int = 0  # tasks that the client kept running, by sending one whenever one ended; 0: it did not

    def changed(self, change: Callable[[RecordedGraph], RecordedGraph]) -> RecordedGraph:
        """The graph with `change` applied to all graphs that its tasks send, and to itself."""
        tasks = (replace(each, sends=each.sends.changed(change)) if each.sends else each for each in self.tasks)
        return change(replace(self, tasks=tuple(tasks)))

    def first(self, tasks: int) -> RecordedGraph:
        """The graph of the first `tasks` tasks, which need no others."""
        kept = self.tasks[:tasks]
        sent = max((task.submission for task in kept), default=0) + 1
        return replace(self, tasks=kept, submissions=self.submissions[:sent])

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **vars(self)}, default=vars)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> RecordedGraph:
        return from_mapping(cls, data)

    @classmethod
    def read(cls, path: str) -> RecordedGraph:
        """Read a file; raises `InvalidField` if it is missing or holds something else."""
        import fsspec

        try:
            with fsspec.open(path, "r", encoding="utf-8") as file:
                data = json.load(file)
            if data["format"] != FORMAT:
                raise ValueError(f"it has format {data['format']}, not {FORMAT}")
            return cls.from_mapping(data)
        except (OSError, ValueError, KeyError, TypeError, ImportError, InvalidField) as error:
            raise InvalidField(
                "params.graph",
                path,
                f"the file of a recorded graph ({type(error).__name__}: {error})",
                next_step="`scalescope isolate RUN` writes such a file; the workload's host must find it there",
            ) from error
