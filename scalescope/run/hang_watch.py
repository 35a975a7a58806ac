"""Notices that nothing moves on a cluster while the user's code runs, and says so once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Self

from distributed import Client

from scalescope.capture.live.remote_calls import ClientCalls
from scalescope.capture.live.standing_tasks import standstill
from scalescope.model.standstill import STILL_S, Standstill
from scalescope.report.hang_lines import headline, standing
from scalescope.run.cluster_watch import CALL_S, INTERVAL_S, ClusterWatch

logger = logging.getLogger(__name__)


class HangWatch:
    """Looks every two seconds, in a thread of its own, as long as it is open."""

    def __init__(self, client: Client, say: Callable[[str], object]) -> None:
        self.found: Standstill | None = None  # what stands still; None while something moves
        self._calls, self._say = ClientCalls(client), say
        self._told, self._over = False, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="scalescope-hang-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join(CALL_S)

    def _watch(self) -> None:
        watch = ClusterWatch(self._calls)
        while not self._over.wait(INTERVAL_S):
            try:
                look = watch.look()
                self.found = standstill(self._calls, CALL_S, STILL_S) if look.stands else None
            except Exception as error:  # noqa: BLE001 - an old or closed cluster, or a broken connection
                logger.info("the cluster is not watched for hangs any more: %r", error)
                return
            if look.stands and look.standstill is not None and not self._told:
                self._told = True
                self._say("\n".join([headline(look.standstill, look.time), *standing(look.standstill)]))
