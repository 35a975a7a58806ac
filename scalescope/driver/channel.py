"""The driver's end of the streams to its parent, and a clock that always tells real time."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import fields, replace
from datetime import UTC, datetime

from scalescope.driver.protocol import Message, encode
from scalescope.redaction import hide_all

_WORDS = "key", "state", "type"  # fields of the protocol, sent unchanged even if a secret equals their value


def take_over_streams() -> tuple[int, Channel]:
    """Keep the standard streams for the protocol; returns the descriptor of requests and the channel for replies.

    All other code gets an empty standard input and writes to standard error, so a stray `print` cannot corrupt the
    protocol. Children do not inherit the reserved streams, so the parent notices at once that the driver has ended.
    """
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, Channel(replies)


class Channel:
    """Sends replies as whole lines; any thread may use it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message, with known secrets removed. A failure is ignored: `DriverWatch` notices a missing parent."""
        given = {each.name: getattr(message, each.name) for each in fields(message) if each.name not in _WORDS}
        data = memoryview(encode(replace(message, **hide_all(given))))
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BrokenPipeError:
                    return


def real_seconds() -> float:
    """Seconds of a monotonic clock that tells real time even if a virtual clock is installed."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
