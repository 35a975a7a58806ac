"""Notices a standstill of a cluster while the user's code runs, and reports it once.

It also reports if the program waits in a call of the client, such as `scatter`, while there are no tasks.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Self

from distributed import Client

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.live.remote_calls import ClientCalls
from scalescope.capture.live.standing_tasks import Hang
from scalescope.capture.unheard import unheard
from scalescope.model.standstill import Standstill
from scalescope.own_code.cluster_watch import CALL_S, INTERVAL_S, ClusterWatch, Look

CALL_STILL_S = 7.0  # seconds after which a wait in a call is reported; with a look every 2 s, that is within 10 s
MOST_FAILURES = 3  # the watch ends after so many failed looks in a row

logger = logging.getLogger(__name__)


class HangWatch:
    """Looks every two seconds, in a thread of its own, while it is open.

    `says` gets a standstill and the scheduler's time, at most once for tasks and once for a call of the client.
    """

    def __init__(
        self, client: Client, says: Callable[[Hang, float], object], program: ClientWatch | None = None
    ) -> None:
        self.found: Standstill | None = None  # the present standstill; None while something moves
        self._calls, self._says = ClientCalls(client), says
        self._program = program  # the thread that uses the cluster; None if that is unknown
        self._told, self._told_call, self._over = False, False, threading.Event()
        self._thread = threading.Thread(
            target=unheard(self._watch, self._failed), name="scalescope-hang-watch", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join(CALL_S)

    def _failed(self, error: Exception) -> None:
        logger.info("the cluster is not watched any more: %r", error)
        self.found = None

    def _watch(self) -> None:
        # File that defines functions which the script sends by value; empty in a notebook
        script = os.path.basename(getattr(sys.modules["__main__"], "__file__", None) or "")
        watch, failures = ClusterWatch(self._calls, sent_from=script), 0
        while failures < MOST_FAILURES and not self._over.wait(INTERVAL_S):
            try:
                look = watch.look()
            except Exception as error:  # noqa: BLE001 - an old, busy or closed cluster, or a broken connection
                logger.info("the cluster could not be examined: %r", error)
                self.found, failures = None, failures + 1  # the standstill may be over by now
                continue
            self.found, failures = look.standing if look.stands else None, 0
            if look.stands and look.standstill is not None and not self._told:
                self._told = True
                self._says(look.standstill, look.time)
            elif not self._told_call and (hang := self._without_tasks(look)) is not None:
                self._told_call = True
                self._says(hang, look.time)

    def _without_tasks(self, look: Look) -> Hang | None:
        """A long wait of the program for the cluster while the scheduler has no unfinished task."""
        waits = self._program.awaits() if self._program and not any(look.seen["left"].values()) else None
        if waits is None:
            return None
        where, call, seconds = waits
        since = max(look.time - seconds, look.moved)  # until then, the call may have waited for tasks
        if look.time - since < CALL_STILL_S:
            return None
        said = f"The program waits in {f'`{call}`' if call else 'a call'}" + (f" at {where}" if where else "")
        answer = "an answer of the scheduler or of workers" if look.seen["workers"] else "a worker: none is there"
        hint = f"{said}. The scheduler has no unfinished task, so the program waits for {answer}."
        return Hang(since, (), 0, (), (hint,))
