"""Signals that ask this process to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_received: list[list[int]] = []  # received signals of each open block of `noted`


@contextmanager
def noted(*numbers: int) -> Iterator[list[int]]:
    """Let these signals raise KeyboardInterrupt while the block runs; yields the list of received signals.

    A signal that the process ignores stays ignored, as under `nohup`.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    _received.append(received)
    try:
        yield received
    finally:
        _received.pop()
        for number, handler in before.items():
            signal.signal(number, handler)


def have_come() -> bool:
    """Whether a signal came within an open `noted`; its exception may have become another error."""
    return any(_received)


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore SIGTERM and SIGINT, so that a second signal does not interrupt the teardown."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
