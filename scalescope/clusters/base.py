"""What the driver needs from a cluster, whatever its kind."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Scheduler
    from distributed.scheduler import WorkerState

    from scalescope.clusters.fault_injection import Injection
    from scalescope.model.cluster import ClusterSpec
    from scalescope.model.fault import Fault
    from scalescope.model.spool import Columns
    from scalescope.model.sweep import Point
    from scalescope.model.workload import Workload

NANNIES_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        "distributed.deploy.lost-worker-timeout": "1h",
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
)
"""Nannies bring workers back; the cluster must not end a nanny that is slow at it. HTTP asks nobody for proof."""

S = TypeVar("S", bound="ClusterSpec")
"""What a cluster is asked for with."""


class Cluster(ABC, Generic[S]):
    """A Dask cluster of one kind, owned by one driver process.

    The driver calls, in this order: `open`, then for every trial `scale` and `running`, at the end `close`. `close` may
    be called at any time, twice too.

    Attributes:
        shows: What a trial on it can show, one sentence.
        cannot_show: What it cannot show, one sentence.
        dask_config: Dask configuration that it needs in its process; what a point asks for comes on top.
        nannies: Whether every worker is a process of its own with a nanny, so that its log can outlive it.
    """

    shows: ClassVar[str]
    cannot_show: ClassVar[str]
    dask_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    nannies: ClassVar[bool] = False

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        self.spec = spec
        self.seed = seed
        self.report: Callable[[str], object] = _unheard
        """Called while `scale` waits, with a sentence that says for what; whoever runs the cluster may replace it."""
        self.groups: Mapping[str, int] = {}
        """How many of the workers that `scale` is asked for are in which further worker group: to be set before."""
        self.folder = ""
        """Where else workers that see it may import from: to be set before `scale`."""

    @property
    def kind(self) -> str:
        """As in its specification."""
        return self.spec.kind

    @abstractmethod
    def open(self) -> None:
        """Start the scheduler. Dask's configuration is already set in this process.

        Raises:
            ClusterError: It did not start.
        """

    def is_whole(self) -> bool:
        """Whether it can be scaled again: false where what ended is not replaced, so that it must be opened anew."""
        return True

    @abstractmethod
    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Have exactly `workers` workers of exactly `threads_per_worker` threads, all registered, before returning.

        Raises:
            WorkersMissing: They did not arrive in time.
        """

    @abstractmethod
    def client(self) -> Client:
        """A new client of this cluster; the caller closes it."""

    @abstractmethod
    def close(self) -> None:
        """End every process and thread of the cluster."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What a reader of the result must know of the cluster: layout, clock, costs, limits. JSON.

        Each kind adds its own to this.
        """
        return {
            "kind": self.kind,
            "clock": "real" if self.spec.real_time else "virtual",
            "shows": self.shows,
            "cannot_show": self.cannot_show,
        }

    def _not_open(self) -> ClusterError:
        return ClusterError(
            f"the {self.kind} cluster is not open", next_step="call `open` first; it may have been closed"
        )

    def submission(self, workers: int, threads_per_worker: int) -> str:
        """What would be submitted for a cluster of that size, a job script or a manifest; empty where nothing is.

        What is known only when it opens is in capitals. It need not be open.
        """
        return ""

    def losses(self) -> str:
        """Why workers were lost during the last trial, as far as the cluster knows; empty when none was."""
        return ""

    def records(self) -> Mapping[str, Columns]:
        """Rows for tables of `scalescope.model.records` that the cluster itself keeps of the last trial.

        Raises:
            ClusterError: They cannot be had; the trial is worth no less.
        """
        return {}

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Hold while the driver waits for the next request; between `open` and `close`, on the thread that opened."""
        yield

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Hold for the length of a trial; the calling thread is the one that runs the workload."""
        yield

    def breaking(self, fault: Fault) -> Injection:
        """What breaks something while it is entered; asked of clusters alone whose specification has such faults."""
        raise NotImplementedError(self.kind)

    @contextmanager
    def watched(self, passed: Callable[[], object]) -> Iterator[bool]:
        """Have `passed` called before and after each wait of the calling thread, if its time passes in no other way.

        Yields:
            Whether it is so.
        """
        yield False

    def time(self) -> float:
        """Seconds since the epoch on the cluster's clock."""
        import time

        return time.time()


def registered(scheduler: Scheduler) -> list[WorkerState]:
    """A scheduler's workers, read from any thread, in no particular order.

    `scheduler.workers.values()` raises `KeyError` while the event loop adds one: a `SortedDict` has the key first.
    """
    return list(dict.values(scheduler.workers))


class LogTail(logging.Handler):
    """Keeps the first lines of the last records of a logger, from level INFO on, whatever of it is shown.

    Args:
        name: Of the logger.
        most: Lines.
        keep: Which records; by default all.
    """

    def __init__(self, name: str, most: int, keep: Callable[[logging.LogRecord], bool] = lambda record: True) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=most)
        self._logger = logging.getLogger(name)
        self.addFilter(keep)

    def attach(self) -> None:
        """Begin."""
        self._logger.addHandler(self)

    def detach(self) -> None:
        """Keep no more; what is kept stays."""
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.lines.append(record.getMessage().strip().partition("\n")[0])


def _unheard(text: str) -> None:
    """Nobody listens."""
