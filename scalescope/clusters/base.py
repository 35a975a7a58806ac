"""The interface of clusters that the driver uses."""

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

# Settings without HTTP routes: HTTP has no login, and would show logs, task names and call stacks to all users.
NO_HTTP: Mapping[str, Any] = MappingProxyType(
    {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
)
# Settings of clusters with nannies: the cluster gives a nanny up to an hour to restart its worker.
NANNIES_CONFIG: Mapping[str, Any] = MappingProxyType({"distributed.deploy.lost-worker-timeout": "1h", **NO_HTTP})

S = TypeVar("S", bound="ClusterSpec")


class Cluster(ABC, Generic[S]):
    """A Dask cluster of one kind, owned by one driver process.

    The driver calls `open`, then `scale` and `running` for every trial, then `close`. `close` may be called at any time
    and more than once.
    """

    shows: ClassVar[str]  # noun phrase in the report: which effects of real clusters can be seen here
    cannot_show: ClassVar[str]
    dask_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # the driver's Dask settings; points override them
    nannies: ClassVar[bool] = False  # True if every worker has a nanny, which keeps the log of a dead worker

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        self.spec = spec
        self.seed = seed
        self.answered: set[object] = set()  # servers that answered a cluster of this driver; waited for when silent
        # The driver sets these attributes before `scale`:
        self.report: Callable[[str], object] = lambda text: None  # called with a sentence on what `scale` waits for
        self.groups: Mapping[str, int] = {}  # number of workers by worker group
        self.folder = ""  # folder from which workers may import modules, if their host can read it
        self.left = ""  # sentence on resources that `close` could not remove, and why
        self.removed: set[str] = set()  # labels of earlier clusters whose remains `open` removed

    @property
    def kind(self) -> str:
        return self.spec.kind

    @abstractmethod
    def open(self) -> None:
        """Start the scheduler; this process already has the cluster's Dask configuration."""

    def is_whole(self) -> bool:
        """Whether the cluster can be scaled again; if one of its processes has ended, a new cluster must be opened."""
        return True

    @abstractmethod
    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Start and stop workers until exactly `workers` are registered, or raise `WorkersMissing`."""

    @abstractmethod
    def client(self) -> Client:
        """A new client; the caller closes it."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts about the cluster for readers of the result, as JSON; each kind adds its own."""
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
        """The job script or manifest for this size; unknown values are words in capitals. Empty if there is none."""
        return ""

    def losses(self) -> str:
        """Why workers were lost during the last trial; empty if none were lost, or the cluster does not know."""
        return ""

    def outage(self) -> str:
        """A sentence on the outage that cut this trial off from the cluster; empty if none is known.

        Raises `ClusterError` if the outage lasts.
        """
        return ""

    def records(self) -> Mapping[str, Columns]:
        """Rows that the cluster recorded in the last trial, by table of `model.records`; may raise `ClusterError`."""
        return {}

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Context entered while the driver waits for a request, on the thread that opened the cluster."""
        yield

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Context entered during a trial, on the thread that runs the workload."""
        yield

    def breaking(self, fault: Fault) -> Injection:
        """A context manager that injects the fault; called only for faults that the specification lists."""
        raise NotImplementedError(self.kind)

    @contextmanager
    def watched(self, passed: Callable[[], object]) -> Iterator[bool]:
        """Context that calls `passed` before and after each wait of this thread; yields False if the cluster cannot."""
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
    """Keeps the first line of each of the last `most` records of logger `name`, from INFO up, that `keep` accepts."""

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
