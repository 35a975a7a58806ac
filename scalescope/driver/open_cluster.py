"""Opens the cluster of a driver, scales it for each trial, and clears it after each trial."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import dask
import distributed

from scalescope import clusters
from scalescope.capture import gpu, memory, process_samples
from scalescope.capture.live import standing_tasks
from scalescope.capture.live.remote_calls import ClientCalls
from scalescope.capture.recording import Capture
from scalescope.capture.shipping import Shipment
from scalescope.clusters.base import Cluster
from scalescope.clusters.observed_cluster import close_client
from scalescope.driver import sent_functions
from scalescope.driver.protocol import Open
from scalescope.driver.trial_clients import TrialClients
from scalescope.errors import ClusterError, DriverError, WorkersMissing
from scalescope.model.cluster import cluster_spec
from scalescope.model.standstill import STANDSTILL, STILL_S
from scalescope.model.sweep import Point
from scalescope.model.words import plural
from scalescope.model.workload import Workload

logger = logging.getLogger(__name__)

SCALE_LIMIT_S = 150.0  # real seconds to scale a cluster, if its specification sets no limit
CLEAR_LIMIT_S = 60.0  # real seconds to clear up after a trial
LIMIT_MARGIN_S = 30.0  # seconds added to limits of the specification, so that the cluster can report its error first
IMPORT_TIMEOUT_S = 60.0  # seconds for imports on workers, then on the scheduler; afterwards the trial runs anyway
ASK_TIMEOUT_S, LAST_WORD_S = 30.0, 5.0  # seconds for an answer of the scheduler: usually; after a trial's time limit
DRAIN_LIMIT_S = 3.0  # seconds for tasks to end after their trial; otherwise the cluster is opened anew
DRAIN_INTERVAL_S = 2.0  # real seconds between collections of records; in simulated time, there is one at the end

NO_PYNVML = "DISABLED_PYNVML_NOT_AVAILABLE"  # a worker without `nvidia-ml-py` cannot say whether it sees a GPU

Members = dict[str, tuple[str, int, str]]  # workers known to the scheduler: address -> name, threads, status


class OpenCluster:
    """Opens clusters as trials need them. Only `abandon` and `stands` may be called outside the main thread."""

    def __init__(self, enter: Callable[[str, float, str], None]) -> None:
        self.enter = enter  # called when a phase begins: name, limit in real seconds, text for people
        self.cluster: Cluster[Any] | None = None
        self.capture: Capture | None = None
        self.clients = TrialClients()
        self.opening = False  # True while the main thread opens a cluster on other machines, which may take long
        self._closing = threading.Lock()  # held while a cluster is closed
        self.spoiled = False  # True if the next trial needs a new cluster
        self.reopened = ""  # sentence on why the next trial gets a new cluster; empty: it keeps this one
        self.left: list[str] = []  # sentences about jobs or pods that closed clusters left behind
        self._request: Open | None = None
        self._config: dict[str, Any] = {}
        self._answered: set[object] = set()  # control planes that have already answered any of the clusters
        self._settings = ExitStack()  # Dask settings while the cluster is open
        self._observer: distributed.Client | None = None
        self._imported: set[tuple[str, str]] = set()  # pairs (workload, worker address) that were asked to import

    def open(self, request: Open) -> dict[str, Any]:
        """Open a cluster after closing the present one; returns the facts of the new cluster."""
        self._request = request
        return self._open({})

    def _open(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._request is None:
            raise DriverError("a trial was asked for before a cluster was opened", where="driver protocol")
        self.close()
        spec = cluster_spec(self._request.cluster)
        limit = spec.open_limit_s + LIMIT_MARGIN_S
        self.enter("opening", limit, f"opening the {spec.kind} cluster")
        self._config = config
        self._imported.clear()
        self.cluster = clusters.build(spec, seed=self._request.seed)
        self.cluster.answered = self._answered
        scratch = {}
        if spec.here and dask.config.get("temporary-directory", None) is None:
            scratch["temporary-directory"] = self._request.folder  # removed with the driver's folder
        self._settings.enter_context(dask.config.set({**scratch, **self.cluster.dask_config, **config}))
        self.cluster.report = lambda text: self.enter("opening", limit, text)
        self.opening = not spec.here
        try:
            self.cluster.open()
        except BaseException:
            self.close()
            raise
        finally:
            self.opening = False
        return self.cluster.facts()

    def close(self) -> None:
        self._disconnect()
        try:
            with self._closing:
                cluster, self.cluster = self.cluster, None
                if cluster is not None:
                    self._end(cluster)
        finally:
            self.spoiled = False
            self._settings.close()

    def abandon(self) -> None:
        """End the cluster's processes even if the main thread uses them; if it is closing them, wait until it has."""
        cluster = self.cluster
        if cluster is not None and cluster.spec.real_time:  # a simulated cluster has no other processes
            self._end(cluster)
        with self._closing:
            pass

    def _end(self, cluster: Cluster[Any]) -> None:
        cluster.close()
        left = dict.fromkeys([*self.left, cluster.left])  # the same cluster may be ended twice, by two threads
        self.left = [each for each in left if each and not any(label in each for label in cluster.removed)]

    def stands(self, limit_s: float) -> tuple[str, dict[str, Any]]:
        """The lines of code at which the running trial's tasks are: as a sentence, and as a fact of the trial.

        `limit_s`: the trial's time limit; tasks at the same line for half of it, or for `STILL_S`, stand still.
        """
        cluster, client = self.cluster, self._observer
        if cluster is None or client is None:
            return "there is no cluster", {}
        try:
            enough_s = min(STILL_S, limit_s / 2) if cluster.spec.real_time else STILL_S
            found = standing_tasks.standstill(ClientCalls(client), LAST_WORD_S, enough_s)
        except Exception:
            logger.exception("the scheduler did not say which lines of code its tasks are running")
            return "the scheduler did not say which lines of code its tasks are running", {}
        return found.sentence("" if cluster.spec.real_time else " of simulated time"), {STANDSTILL: found.to_mapping()}

    def idle(self) -> AbstractContextManager[None]:
        """Context for the time in which the driver waits for a request."""
        return nullcontext() if self.cluster is None else self.cluster.idle()

    # ---------------------------------------------------------------- before a trial

    def prepare(self, point: Point, folder: str) -> Members:
        """Provide a cluster with exactly the point's workers and configuration, and no tasks; return the workers.

        `folder`: workers that can read this folder may import from it.
        """
        config = dict(point.dask_config)
        if self.cluster is None or not self.cluster.is_whole() or self._config != config:
            self._open(config)
        cluster = self.cluster
        assert cluster is not None
        limit = (cluster.spec.arrival_limit_s or SCALE_LIMIT_S) + LIMIT_MARGIN_S
        self.enter("scaling", limit, f"scaling to {point.workers} workers of {point.threads_per_worker} threads")
        if not cluster.spec.real_time:  # a simulated cluster starts a new scheduler whenever it is scaled
            self._disconnect()
        cluster.report = lambda text: self.enter("scaling", limit, text)
        cluster.groups, cluster.folder = point.groups, folder
        cluster.scale(point.workers, point.threads_per_worker)
        if self._observer is None:
            self._connect(cluster)
        if not self._forget() or (self.reopened and self._still_run()):
            raise ClusterError(
                "the cluster has tasks before the trial begins",
                where=f"{cluster.kind} cluster",
                cause="another client uses the cluster, or tasks of an earlier trial still run",
                next_step="give the trial a cluster of its own",
            )
        present = self.members()
        wrong = [name for name, threads, _ in present.values() if threads != point.threads_per_worker]
        if len(present) != point.workers or wrong:
            raise WorkersMissing(
                f"the scheduler knows {plural(len(present), 'worker')}, {len(wrong)} of them with wrong threads, "
                f"instead of {point.workers} of {point.threads_per_worker} threads",
                where=f"{cluster.kind} cluster",
                cause="workers came or went between scaling and the trial",
                next_step="run the trial again; read the driver's log if it happens again",
            )
        if getattr(cluster.spec, "gpus", 0):
            self._check_gpus(cluster)
        return present

    def _check_gpus(self, cluster: Cluster[Any]) -> None:
        assert self._observer is not None
        answers = self._observer.run(Shipment(gpu, "why_absent"), on_error="ignore", callback_timeout=ASK_TIMEOUT_S)
        absent = [memory.NO_GPU.get(why, why) for why in answers.values() if why not in ("", NO_PYNVML)]
        if absent and len(absent) == len(answers):
            error = ClusterError(
                "the cluster was asked for GPUs, but no worker sees one",
                where=f"{cluster.kind} cluster, {len(answers)} workers",
                cause=absent[0],
                next_step="run `nvidia-smi` in a job or pod of such a worker; on Slurm look at `cluster.gpus` and "
                "`cluster.gres`, on Kubernetes at nvidia.com/gpu and NVIDIA's device plugin",
            )
            error.ends_run = True
            raise error

    def import_modules(self, workload: Workload, workers: Collection[str]) -> str:
        """Import the workload's modules in every process, so that the first tasks do not include the import.

        Returns a warning if processes did not answer. A failed import is ignored: tasks that need the module report it.
        """
        assert self._observer is not None
        wanting = [address for address in workers if (workload.name, address) not in self._imported]
        if not wanting:
            return ""
        self._imported.update((workload.name, address) for address in wanting)
        packages = (package.replace("-", "_") for package in workload.packages)
        modules = [*packages, workload.run.__module__, *workload.modules]
        text = f"importing the workload's modules in the scheduler and {len(wanting)} workers"
        self.enter("importing", 2 * IMPORT_TIMEOUT_S + LIMIT_MARGIN_S, text)
        function = Shipment(sent_functions, "import_modules")
        asked = {"modules": modules, "callback_timeout": IMPORT_TIMEOUT_S}
        try:
            self._observer.run(function, workers=wanting, on_error="ignore", **asked)
            beat = Shipment(process_samples, "beat")
            self._observer.run(beat, workers=wanting, on_error="ignore", callback_timeout=IMPORT_TIMEOUT_S)
            self._observer.run_on_scheduler(function, **asked)
        except (OSError, ValueError, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            return (
                f"some processes did not import the workload's modules before the trial ({why}); "
                "the first tasks may include that import time"
            )
        return ""

    def members(self) -> Members:
        return {address: tuple(entry) for address, entry in self._ask("census")["workers"].items()}

    # ---------------------------------------------------------------- after a trial

    def clear(self) -> None:
        """Remove clients, tasks and durations learnt by the scheduler; if that fails, close the cluster."""
        self.enter("clearing", CLEAR_LIMIT_S, "cleaning up")
        try:
            clean = not self.spoiled and self._drained()
            why = "tasks of the previous trial still ran"
        except Exception as error:
            why = f"it could not be cleared ({type(error).__name__}: {error})"
            logger.exception("the cluster could not be cleared; the next trial gets a new one")
            clean = False
        if not clean:
            if not self.spoiled:
                self.reopened = f"the cluster was opened anew before this trial: {why}"
            self.close()

    def _drained(self) -> bool:
        if self._observer is None or self.cluster is None:
            return True
        ended = True
        if self.cluster.spec.real_time:
            ended = self._wait_for(lambda: self._ask("census")["processing"] == 0)
        self.clients.close(keep=self._observer)
        gc.collect()
        if not self.cluster.spec.real_time:  # a simulated cluster starts a new scheduler and workers for every trial
            return True
        # The scheduler forgets cancelled tasks and those of closed clients, but their workers may still run them.
        return ended and self._forget() and self._wait_for(lambda: not self._still_run())

    # ---------------------------------------------------------------- the scheduler

    def _connect(self, cluster: Cluster[Any]) -> None:
        assert self._request is not None
        self._observer = cluster.client()
        self.capture = Capture(
            self._observer,
            drain_interval_s=DRAIN_INTERVAL_S if cluster.spec.real_time else None,
            log_folder=Path(self._request.folder, "worker-logs") if cluster.nannies else None,
        )

    def _disconnect(self) -> None:
        self.clients.close(keep=self._observer)
        capture, self.capture = self.capture, None
        observer, self._observer = self._observer, None
        if capture is not None:
            capture.close()
        if observer is not None:
            close_client(observer)

    def _ask(self, function: str, **arguments: Any) -> Any:
        assert self._observer is not None
        try:
            if self._observer.scheduler is None:  # set by distributed if a client cannot reconnect
                raise ConnectionError("the connection was lost")
            return self._observer.run_on_scheduler(
                Shipment(sent_functions, function), callback_timeout=ASK_TIMEOUT_S, **arguments
            )
        except (OSError, ValueError, TimeoutError) as error:
            raise ClusterError(
                "the scheduler does not answer",
                where=getattr(self._observer.scheduler, "address", "scheduler"),
                cause=f"{type(error).__name__}: {error}",
                next_step="read the driver's log: the scheduler's machine may be gone, stopped or out of memory",
            ) from error

    def _forget(self) -> bool:
        bandwidth = dask.utils.parse_bytes(dask.config.get("distributed.scheduler.bandwidth"))
        return self._wait_for(lambda: bool(self._ask("forget", bandwidth=bandwidth)))

    def _still_run(self) -> bool:
        assert self._observer is not None
        running = Shipment(sent_functions, "running")
        return any(self._observer.run(running, on_error="ignore", callback_timeout=ASK_TIMEOUT_S).values())

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        for _ in range(round(DRAIN_LIMIT_S / 0.05)):
            if condition():
                return True
            time.sleep(0.05)
        return False
