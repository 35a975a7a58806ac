"""Asks the server of a cluster again while it is silent, and measures how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from scalescope.errors import ClusterError

AGAIN_S = 1.0  # seconds between a question that got no answer and the next try

OUTAGE_S = 5.0  # seconds of silence after which the server's knowledge of others may be old

T = TypeVar("T")


class ControlPlane:
    """A server that is asked one question after the other."""

    def __init__(self) -> None:
        self.silent_s = 0.0  # longest silence in seconds; callers may set it to 0
        self.back_since = 0.0  # end of the last silence of at least `OUTAGE_S`, by the monotonic clock; 0 if none was
        self._silent_since = 0.0  # begin of the present silence, by the monotonic clock; 0 without silence

    def _wait(
        self, ask: Callable[[], T], is_silent: Callable[[ClusterError], bool], patience_s: Callable[[], float]
    ) -> T:
        """The answer to `ask`, which is called again for `patience_s` seconds while its errors mean silence."""
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
