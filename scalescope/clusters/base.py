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

# HTTP has no login, and shows logs, names of tasks and call stacks to every user of the machine.
NO_HTTP: Mapping[str, Any] = MappingProxyType(
    {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
)
# For clusters with nannies: do not end a nanny that is slow to restart its worker.
NANNIES_CONFIG: Mapping[str, Any] = MappingProxyType({"distributed.deploy.lost-worker-timeout": "1h", **NO_HTTP})

S = TypeVar("S", bound="ClusterSpec")


class Cluster(ABC, Generic[S]):
    """A Dask cluster of one kind, owned by one driver process.

    The driver calls `open`, then `scale` and `running` for every trial, then `close`. `close` may be called at any
    time, and again.
    """

    shows: ClassVar[str]  # what a trial on it can show
    cannot_show: ClassVar[str]
    dask_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # of the driver; a point's own overrides it
    nannies: ClassVar[bool] = False  # whether every worker has a nanny, which keeps the log of a dead worker

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        self.spec = spec
        self.seed = seed
        self.answered: set[object] = set()  # control planes that have answered; the driver passes it on
        # The driver sets these before `scale`:
        self.report: Callable[[str], object] = lambda text: None  # told what `scale` waits for
        self.groups: Mapping[str, int] = {}  # worker group -> how many of the workers are in it
        self.folder = ""  # workers that see it may also import from it
        self.left = ""  # what `close` could not remove and why, for people

    @property
    def kind(self) -> str:
        return self.spec.kind

    @abstractmethod
    def open(self) -> None:
        """Start the scheduler; this process already has the cluster's Dask configuration."""

    def is_whole(self) -> bool:
        """Whether it can be scaled again; if a process of it ended for good, it must be opened anew."""
        return True

    @abstractmethod
    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Have exactly these workers, all registered, or raise `WorkersMissing`."""

    @abstractmethod
    def client(self) -> Client:
        """A new client; the caller closes it."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What a reader of the result must know, as JSON; each kind adds its own."""
        return {
            "kind": self.kind,
            "clock": "real" if self.spec.real_time else "virtual",
            "shows": self.shows,
            "cannot_show": self.cannot_show,
            **({"gpus": gpus} if (gpus := getattr(self.spec, "gpus", 0)) else {}),
        }

    def _not_open(self) -> ClusterError:
        return ClusterError(f"the {self.kind} cluster is not open", next_step="call `open` first")

    def submission(self, workers: int, threads_per_worker: int) -> str:
        """The job script or manifest for a cluster of that size, if any; values known only later are in capitals."""
        return ""

    def losses(self) -> str:
        """Why workers were lost during the last trial, if the cluster knows; empty if none was."""
        return ""

    def outage(self) -> str:
        """The outage that kept this trial from reaching the cluster; empty if the cluster knows none.

        Raises `ClusterError` if the outage lasts.
        """
        return ""

    def records(self) -> Mapping[str, Columns]:
        """Rows that the cluster itself recorded of the last trial, by table of `model.records`, or `ClusterError`."""
        return {}

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Entered while the driver waits for a request, on the thread that opened the cluster."""
        yield

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Entered during a trial, on the thread that runs the workload."""
        yield

    def breaking(self, fault: Fault) -> Injection:
        """A context manager that injects the fault; called only if the specification lists it."""
        raise NotImplementedError(self.kind)

    @contextmanager
    def watched(self, passed: Callable[[], object]) -> Iterator[bool]:
        """Call `passed` before and after each wait of this thread; yields whether time passes only in waits."""
        yield False

    def time(self) -> float:
        """Seconds since the epoch on the cluster's clock."""
        import time

        return time.time()


def registered(scheduler: Scheduler) -> list[WorkerState]:
    """A scheduler's workers in no particular order, read from any thread."""
    # `scheduler.workers` is a `SortedDict`; its `values()` raises `KeyError` while the event loop adds a worker.
    return list(dict.values(scheduler.workers))


class LogTail(logging.Handler):
    """Keeps the first line of each of the last `most` records of a logger, from level INFO on."""

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
