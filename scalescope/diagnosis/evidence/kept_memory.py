"""Memory of workers besides the results that Dask knows of, and blocks that are too large for a worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Ints
from scalescope.diagnosis.evidence.held_results import SPILL, give_each, limit_of_workers, rounded_limit
from scalescope.diagnosis.evidence.task_table import worker_of_rows
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.records import OVER_MEMORY, STATUS_FINISHED

FRESH = 120 * 2**20  # bytes that the process of a worker takes before its first task
SPARE = 1.2  # ratio of an advised limit to what tasks took: the last tasks may not have been sampled
PAUSE = 0.80  # share of its memory limit at which a worker begins no more tasks (`distributed.worker.memory.pause`)
SEVERAL = 3  # least tasks per thread that ended before the worker was full, for them to count as leaving memory behind
LET_GO = 0.6  # share of the peak of a process; if it later falls below that, tasks keep nothing
COPIES = 3  # blocks in memory at once for each thread: an input, the result, and a copy while it is computed
LARGE = 0.25  # least share of a worker's memory taken by one block per thread, for blocks to count as too large


@dataclass(frozen=True)
class KeptMemory:
    """Memory of the fullest worker process besides results."""

    prefix: str  # prefix of the tasks that ran there longest
    ended: int  # tasks of this prefix that had ended in the process
    resident: float  # peak bytes of the process
    managed: float  # bytes of results at that peak
    each: float  # bytes that each task takes besides its result
    stays: bool  # True if samples show that the bytes stay after the task
    fits: float  # memory limit of a worker, in bytes, that is enough for these tasks

    @property
    def text(self) -> str:
        """Clause on the memory that the tasks take."""
        took = words.size(self.each)
        if self.stays:
            return f"each `{self.prefix}` task leaves about {took} in the memory of its process"
        return f"a `{self.prefix}` task takes about {took} while it runs, besides its result"


@once
def kept_memory(observation: Observation) -> KeptMemory | None:
    """The memory besides results of the fullest process; None if most of it is results, or none was recorded."""
    full = _fullest(observation)
    if full is None:
        return None
    worker, resident, managed, later, when = full
    prefixes = observation.column("tasks", "prefix")
    seconds = observation.numbers("tasks", "stop") - observation.numbers("tasks", "start")
    ran: dict[str, list[float]] = {}
    for row in _ended_there(observation, worker, when).tolist():
        ran.setdefault(prefixes[row], []).append(float(seconds[row]))
    rest = resident - managed - FRESH
    if not ran or rest <= managed:
        return None
    prefix = max(ran, key=lambda each: sum(ran[each]))
    stays = later >= LET_GO * resident
    ended, threads = len(ran[prefix]), observation.trial.point.threads_per_worker
    each = rest / (ended if stays else threads)
    left = observation.standstill.left if observation.standstill else 0
    at_end = (prefixes.count(prefix) + left) / max(observation.trial.point.workers, 1)
    grows = stays and ended > 1  # after a single task, it is not known whether the next one takes as much again
    needed = FRESH + managed + each * (max(at_end, ended) if grows else 1 if stays else threads)
    return KeptMemory(prefix, ended, resident, managed, each, stays, rounded_limit(SPARE * needed / PAUSE))


def _ended_there(observation: Observation, worker: str, when: float) -> Ints:
    """Rows of the table `tasks` that finished on a worker by the time `when`."""
    on_it = np.array([address == worker for address in observation.column("tasks", "worker")], dtype=bool)
    status, stop = (observation.numbers("tasks", name) for name in ("status", "stop"))
    return np.flatnonzero(on_it & (status == STATUS_FINISHED) & (stop <= when))


def _fullest(observation: Observation) -> tuple[str, float, float, float, float] | None:
    """The fullest paused worker: address, most bytes, bytes of results then, least bytes afterwards, and the time.

    Without a pause, it is the fullest worker that its nanny ended.
    """
    if observation.standstill is not None and observation.standstill.memory:
        full = max(observation.standstill.memory, key=lambda each: each.resident)
        return full.worker, full.resident, full.managed, full.resident, np.inf
    if observation.attempts is None:
        return None
    worker = worker_of_rows(observation, "memory")
    time, rss, managed = (observation.numbers("memory", name) for name in ("time", "rss", "managed"))
    pauses, epoch = observation.measured.pauses, observation.measured.epoch
    paused = np.zeros(len(worker), dtype=bool)
    for i, begin, end in zip(pauses.worker.tolist(), pauses.begin + epoch, pauses.end + epoch, strict=True):
        paused |= (worker == i) & (time >= begin) & (time <= end)
    own = np.flatnonzero(paused)
    if not len(own) or not rss[own].any():
        return _ended_by_nanny(observation)
    worst = own[rss[own].argmax()]
    after = (worker == worker[worst]) & (time >= time[worst])
    address = observation.measured.addresses[worker[worst]]
    return address, float(rss[worst]), float(managed[worst]), float(rss[after].min()), float(time[worst])


def _ended_by_nanny(observation: Observation) -> tuple[str, float, float, float, float] | None:
    ended = {str(told["worker"]): (float(told["rss"]), when) for when, told in observation.events(OVER_MEMORY)}
    if not ended:
        return None
    address = max(ended, key=lambda each: ended[each])
    resident, when = ended[address]
    own = _ended_there(observation, address, when)
    # If tasks end one after another until the worker is full, each leaves memory behind.
    stays = resident >= 2 * FRESH and len(own) >= SEVERAL * observation.trial.point.threads_per_worker
    later = resident if stays else 0.0
    return address, resident, float(observation.numbers("tasks", "nbytes")[own].sum()), later, when


@dataclass(frozen=True)
class LargeBlock:
    """The largest result of a task, if a worker's memory holds only few of that size."""

    prefix: str
    nbytes: float
    limit: float  # bytes of memory of a worker
    threads: int  # number of threads of that worker

    @property
    def fits(self) -> float:
        """Bytes of a memory limit that holds such blocks."""
        return rounded_limit((COPIES * self.nbytes * self.threads + FRESH) / SPILL)

    @property
    def smaller(self) -> float:
        """Largest block, in bytes, that fits into the present memory limit."""
        return max(SPILL * self.limit - FRESH, 0.0) / COPIES / self.threads

    @property
    def text(self) -> str:
        threads = f" on each of {self.threads} threads" if self.threads > 1 else ""
        return f"a block of `{self.prefix}` takes {words.size(self.nbytes)}{threads}, and a worker has " + (
            f"{words.size(self.limit)} for the block, its copies and the process"
        )

    @property
    def remedy(self) -> str:
        smaller = f"make the blocks smaller: at most {words.size(self.smaller)} each (`chunks=`, `npartitions=`)"
        return f"{smaller}, or {give_each(self.fits)}" if self.smaller >= 2**20 else give_each(self.fits)


@once
def large_block(observation: Observation) -> LargeBlock | None:
    """The largest result, if a worker's memory holds at most four for each of its threads."""
    limit, sizes = limit_of_workers(observation), observation.numbers("tasks", "nbytes")
    if not limit or not len(sizes):
        return None
    largest = int(sizes.argmax())
    block = LargeBlock(
        str(observation.column("tasks", "prefix")[largest]),
        float(sizes[largest]),
        limit,
        observation.trial.point.threads_per_worker,
    )
    return block if block.nbytes * block.threads >= LARGE * limit else None
