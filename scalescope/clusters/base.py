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
    from scalescope.model.records import Columns
    from scalescope.model.sweep import Point
    from scalescope.model.workload import Workload

NANNIES_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        "distributed.deploy.lost-worker-timeout": "1h",
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
)
"""For clusters with nannies: do not end a nanny that is slow to restart its worker; serve no HTTP without proof."""

S = TypeVar("S", bound="ClusterSpec")


class Cluster(ABC, Generic[S]):
    """A Dask cluster of one kind, owned by one driver process.

    The driver calls `open`, then `scale` and `running` for every trial, at the end `close`, which may be called at any
    time, and again.
    """

    shows: ClassVar[str]  # what a trial on it can show, one sentence
    cannot_show: ClassVar[str]
    dask_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # for its process; a point's own comes on top
    nannies: ClassVar[bool] = False  # whether every worker is a process with a nanny, so that its log can outlive it

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        self.spec = spec
        self.seed = seed
        self.report: Callable[[str], object] = lambda text: None  # told what `scale` waits for; may be replaced
        # To be set before `scale`:
        self.groups: Mapping[str, int] = {}  # how many of the workers are in which further worker group
        self.folder = ""  # where else workers that see it may import from

    @property
    def kind(self) -> str:
        return self.spec.kind

    @abstractmethod
    def open(self) -> None:
        """Start the scheduler; Dask's configuration is already set in this process."""

    def is_whole(self) -> bool:
        """Whether it can be scaled again; if not, because what ended is not replaced, it must be opened anew."""
        return True

    @abstractmethod
    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Have exactly these workers with exactly these threads, all registered, or raise `WorkersMissing`."""

    @abstractmethod
    def client(self) -> Client:
        """A new client of this cluster; the caller closes it."""

    @abstractmethod
    def close(self) -> None:
        """End every process and thread of the cluster."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What a reader of the result must know: layout, clock, costs, limits. JSON; each kind adds its own."""
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
        """The job script or manifest for a cluster of that size, if any; what is known only later is in capitals."""
        return ""

    def losses(self) -> str:
        """Why workers were lost during the last trial, as far as the cluster knows; empty if none was."""
        return ""

    def records(self) -> Mapping[str, Columns]:
        """Rows that the cluster keeps of the last trial, by table of `model.records`, or `ClusterError`."""
        return {}

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Hold while the driver waits for the next request, on the thread that opened the cluster."""
        yield

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Hold during a trial, on the thread that runs the workload."""
        yield

    def breaking(self, fault: Fault) -> Injection:
        """Breaks something while it is entered; called only if the specification has such faults."""
        raise NotImplementedError(self.kind)

    @contextmanager
    def watched(self, passed: Callable[[], object]) -> Iterator[bool]:
        """Call `passed` before and after each wait of this thread; yields whether time passes only then."""
        yield False

    def time(self) -> float:
        """Seconds since the epoch on the cluster's clock."""
        import time

        return time.time()


def registered(scheduler: Scheduler) -> list[WorkerState]:
    """A scheduler's workers in no particular order, read from any thread.

    `scheduler.workers.values()` raises `KeyError` while the event loop adds one: a `SortedDict` has the key first.
    """
    return list(dict.values(scheduler.workers))


class LogTail(logging.Handler):
    """Keeps the first line of each of the last `most` records of a logger, from level INFO on, whatever is shown."""

    def __init__(self, name: str, most: int, keep: Callable[[logging.LogRecord], bool] = lambda record: True) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=most)
        self._logger = logging.getLogger(name)
        self.addFilter(keep)

    def attach(self) -> None:
        self._logger.addHandler(self)

    def detach(self) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage().strip().partition("\n")[0])
