"""What a batch system does for a cluster once a job script is written: submit, cancel, and know of jobs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalescope.clusters.jobqueue.base_spec import JobQueueSpec

if TYPE_CHECKING:
    from dask_jobqueue.core import Job
    from distributed.deploy.spec import SpecCluster


@dataclass(frozen=True)
class Waiting:
    """What is being waited for; no error.

    Attributes:
        words: A sentence.
        in_queue: Whether jobs wait in the queue; else they run, and their workers have not registered.
        reason: In the words of the system; empty where it gives none.
        estimated_start: When the first waiting job will start, as the system reckons; seconds since the epoch.
        jobs: How many wait for that reason.
        since_s: Seconds for which the oldest of them has waited.
    """

    words: str
    in_queue: bool = False
    reason: str = ""
    estimated_start: float | None = None
    jobs: int = 0
    since_s: float = 0.0


class System(ABC):
    """A batch system, as one cluster uses it.

    Args:
        spec: The cluster.
        label: Name of its jobs.
        log_directory: Where their error files are.
    """

    def __init__(self, spec: JobQueueSpec, label: str, log_directory: str) -> None:
        self.spec = spec
        self.label = label
        self.log_directory = log_directory

    @abstractmethod
    def check(self) -> None:
        """Find out whether jobs can be submitted from here.

        Raises:
            ClusterError: They cannot.
        """

    @abstractmethod
    def lease_details(self) -> dict[str, str]:
        """What a reaper needs to know to find the jobs again."""

    @abstractmethod
    def submit(
        self, sizes: Sequence[int], jobs: Sequence[Job], cluster: SpecCluster, stop: threading.Event
    ) -> Iterator[tuple[int, Job, str]]:
        """Submit jobs; yields size, job and number of each that was taken.

        Args:
            sizes: Workers of each job.
            jobs: What to submit.
            cluster: Of the scheduler, for its event loop.
            stop: When it is set, no more are submitted.

        Raises:
            ClusterError: A job was refused.
        """

    @abstractmethod
    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel jobs that are not wanted any more."""

    @abstractmethod
    def cancel_all(self) -> None:
        """Cancel every job of this cluster, also one that is just being submitted."""

    def await_none(self, timeout_s: float) -> str:
        """Wait until no job of this cluster is left; returns which are, as far as the system can be asked."""
        return ""

    def nodes(self) -> dict[str, str]:
        """Where jobs run, by their number, as far as the system was asked."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What the system knows of the jobs: where they ran, how long they waited, what they used. JSON."""
        return {}

    @abstractmethod
    def explain(self, expected: int, arrived: int) -> Waiting | None:
        """Why workers are missing; None when none is.

        Raises:
            ClusterError: They will not come.
        """
