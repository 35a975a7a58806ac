"""Watches workers during a trial.

A trial that lost a worker is invalid whatever comes of it, and its workload may wait forever for results that went with
the worker. So the reason is found out, and then everything that the workload still waits for is cancelled.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scalescope.clusters.background import Background
from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Scheduler

LOOK_INTERVAL_S = 0.25
REASON_TIMEOUT_S = 8.0
"""Seconds for the batch system, or Kubernetes, to say why, before the trial is ended without a reason."""

CANCEL_INTERVAL_S = 1.0
"""Seconds between two cancellations: a workload may go on to submit more."""


class Supervisor(Background):
    """Holds for the length of a trial.

    Args:
        expected: Workers that should be there.
        arrived: How many of them are.
        explain: Called with the number of those that are; raises `ClusterError` with the reason once it is known.
        missing: Says which jobs or pods lack workers, and where they run.
        cancel: Has the scheduler run `cancel_everything`; raises `RuntimeError` where the cluster was closed meanwhile.
        what: Is counted.

    Attributes:
        lost: Why workers were lost; empty when none was.
    """

    def __init__(
        self,
        expected: int,
        *,
        arrived: Callable[[], int],
        explain: Callable[[int], object],
        missing: Callable[[], str],
        cancel: Callable[[], object],
        what: str = "workers",
    ) -> None:
        super().__init__("scalescope-supervisor")
        self.lost = ""
        self._expected, self._arrived, self._what = expected, arrived, what
        self._explain, self._missing, self._cancel = explain, missing, cancel

    def _run(self) -> None:
        over = False
        while self._arrived() >= self._expected:
            if over:
                return
            over = self._over.wait(LOOK_INTERVAL_S)  # and look once more: the loss may be why it is over
        self.lost = self._reason()
        while not self._over.wait(CANCEL_INTERVAL_S):
            try:
                self._cancel()
            except RuntimeError:  # the driver ends, and its cluster was closed meanwhile
                return

    def _reason(self) -> str:
        """Why workers went away: asked for until it is known, for Slurm learns of it after us."""
        lost = f"{self._expected - self._arrived()} of {self._expected} {self._what} were lost"
        deadline = time.monotonic() + REASON_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                self._explain(self._arrived())
            except ClusterError as error:
                return f"{lost}: {error}"
            # The trial may be over meanwhile: the reason is worth the wait.
            time.sleep(LOOK_INTERVAL_S)
        return (
            f"{lost}, of {self._missing()}; nothing says why within {REASON_TIMEOUT_S:g} s. "
            "A node that died is noticed late"
        )


async def cancel_everything(dask_scheduler: Scheduler) -> None:
    """Have every future of every client cancelled."""
    keys = list(dask_scheduler.tasks)
    more: dict[str, Any] = {}
    if "reason" in inspect.signature(dask_scheduler.stimulus_cancel).parameters:  # from 2024 on
        more = {"reason": "workers were lost", "msg": "Scalescope ends this trial: workers were lost"}
    for client in list(dask_scheduler.clients):
        dask_scheduler.stimulus_cancel(keys=keys, client=client, force=True, **more)
