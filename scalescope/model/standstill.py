"""Tasks that stood still when a trial reached its time limit, by the line of code that they were at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scalescope.model.mapping import Mapped
from scalescope.model.words import number

STANDSTILL = "standstill"  # fact of a trial that was stopped at its time limit: a `Standstill`
STILL_S = 10.0  # seconds without the begin or end of a task after which a cluster stands still
NO_WORKER = "no worker may run it"  # first words of the problem of a task whose restrictions no worker meets
ASKS_FOR = f"{NO_WORKER}: it asks for "  # start of the same problem if the restrictions are known, which follow
PAUSED = "its worker is paused for lack of memory"  # the problem of a task that its worker does not begin
ALL_PAUSED = "every worker is paused for lack of memory"  # the problem of a task that is not on any worker
NO_THREAD = "waits for a thread there"  # the problem of a task whose worker has no free thread
RESULTS = ("Client", "Future", "as_completed")  # `waits_for` of tasks that wait for other tasks
SAID = 3  # most groups that a sentence names


@dataclass(frozen=True)
class StandingTasks:
    """Tasks of one prefix that stand still at the same line."""

    prefix: str  # prefix of their keys
    tasks: int
    holds: bool  # True if the tasks hold threads: they have begun and not seceded
    where: str  # line of the user's code, as `my_job.py:14 in load`; empty if the tasks do not run, or if unknown
    call: str  # function called at that line, as `result (client.py)`
    waits_for: str  # class of `distributed` in which the tasks wait, as `Semaphore`; empty if they do not wait
    problem: str  # reason why the tasks have not begun, or a disagreement of scheduler and worker
    stuck: int  # tasks on workers whose threads are all held by tasks that wait in `distributed`


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of a worker in bytes, as the worker last reported it to the scheduler."""

    worker: str  # address of the worker
    resident: float  # resident bytes of its process
    managed: float  # bytes of results in its memory


@dataclass(frozen=True)
class Standstill(Mapped):
    """A cluster at the moment at which a trial was stopped."""

    still_s: float | None  # seconds since a task last began or ended, on the cluster's clock; None: never
    threads: int  # threads of all workers
    taken: int  # threads that tasks hold
    left: int  # tasks that have not ended
    ready: int  # tasks that only lack a thread
    computing: int  # workers that use the processor
    groups: tuple[StandingTasks, ...]  # tasks that are with workers, largest first
    hints: tuple[str, ...] = ()  # advice where to look, in sentences
    enough_s: float = STILL_S  # `still_s` after which the cluster stands still
    memory: tuple[WorkerMemory, ...] = ()  # memory of paused workers

    @property
    def lasts(self) -> bool:
        """Whether nothing has moved for long, and no worker computes either."""
        return self.still_s is not None and self.still_s >= self.enough_s and self.left > 0 and not self.computing

    @property
    def holding(self) -> tuple[StandingTasks, ...]:
        return tuple(each for each in self.groups if each.holds)

    def sentence(self, time: str = "") -> str:
        """Describe the standstill; `time` qualifies seconds, such as ` of simulated time`."""
        if not self.left:
            return "all tasks of the scheduler have ended"
        unfinished = f"{self.left:,} {'task has' if self.left == 1 else 'tasks have'} not ended"
        if self.still_s is None:
            return f"{unfinished}, and no task has begun"
        if not self.lasts:
            computes = f", and {self.computing:,} {'worker computes' if self.computing == 1 else 'workers compute'}"
            ago = f"the last start or end of a task was {number(self.still_s)} s{time} earlier"
            return f"{unfinished}; {ago}{computes if self.computing else ''}"
        said = "; ".join(self._said())
        return f"no task has begun or ended for {number(self.still_s)} s{time}: {said or unfinished}"

    def _said(self) -> Iterator[str]:
        told = [each for each in self.groups if each.problem != NO_THREAD]
        for each in sorted(told, key=lambda each: not each.holds)[:SAID]:
            what = f"{each.tasks:,} {'task' if each.tasks == 1 else 'tasks'} `{each.prefix}`"
            if each.problem:
                yield f"{what}: {each.problem}"
                continue
            verb = "hold" if each.holds else "wait"
            held = f"{verb}{'s' * (each.tasks == 1)}"
            held += f" {each.tasks:,} of {self.threads:,} threads" if each.holds else " outside the thread pool"
            call = f", in {each.call}" if each.call else ""
            yield f"{what} {held} {f'at {each.where}' if each.where else 'in a library'}{call}"
        if self.ready:
            yield f"{self.ready:,} {'task waits' if self.ready == 1 else 'tasks wait'} for a thread"
