"""Asks a cluster's server, repeats the question while the server is silent, and measures how long it is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from scalescope.errors import ClusterError

AGAIN_S = 1.0  # seconds from an unanswered question to the next try

OUTAGE_S = 5.0  # seconds of silence after which the server's report on nodes and clusters may be out of date

T = TypeVar("T")


class ControlPlane:
    """A server to which questions go one at a time."""

    def __init__(self) -> None:
        self.silent_s = 0.0  # longest silence in seconds since a caller last set this to 0
        self.back_since = 0.0  # end of the last silence of `OUTAGE_S` or more, by the monotonic clock; 0: none yet
        self._silent_since = 0.0  # start of the current silence, by the monotonic clock; 0 if the server answers

    def _wait(
        self, ask: Callable[[], T], is_silent: Callable[[ClusterError], bool], patience_s: Callable[[], float]
    ) -> T:
        """The result of `ask`; while its errors mean silence, call it again, for at most `patience_s` seconds."""
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                answer = ask()
            except ClusterError as error:
                silent = is_silent(error)
                self._heard(asked, answered=not silent)
                if not silent or time.monotonic() - began > patience_s():
                    raise
            else:
                self._heard(asked, answered=True)
                return answer
            time.sleep(AGAIN_S)

    def _heard(self, asked: float, *, answered: bool) -> None:
        since = self._silent_since or asked
        silent_s = time.monotonic() - since
        self.silent_s = max(self.silent_s, silent_s)
        if answered and silent_s > OUTAGE_S:
            self.back_since = time.monotonic()
        self._silent_since = 0.0 if answered else since
