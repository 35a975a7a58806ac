"""Stops the HTTP servers of a cluster, which have no login. Sent to the scheduler and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed import WorkerPlugin

if TYPE_CHECKING:
    from distributed import Scheduler, Worker


class StopHttp(WorkerPlugin):  # type: ignore[misc]
    """Stops the HTTP server of every worker, including workers that register later."""

    name = "scalescope-stop-http"

    def setup(self, worker: Worker) -> None:
        worker.http_server.stop()


def of_scheduler(dask_scheduler: Scheduler) -> None:
    dask_scheduler.http_server.stop()
