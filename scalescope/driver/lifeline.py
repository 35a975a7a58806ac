"""What ties the driver to its parent: requests come in, and whatever means "stop" is noticed at once.

A thread of its own does the watching, because the main thread is busy running a workload. It must be started before
a virtual clock has anything to do with the main thread, so that it lives in real time.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable

PARENT_CHECK_S = 0.5
"""Seconds between looks at who the parent is. A second guard: the pipe says so at once, unless somebody else, such as
a forked sibling, holds its other end open. (The death signal of Linux is no alternative: it is sent when the *thread*
ends that started the driver, and orchestrators start drivers from short-lived threads.)"""


class Lifeline:
    """Reads request lines, and reports the first reason to stop.

    Args:
        on_line: Called with each line that arrives.
        on_gone: Called when the parent is gone: its end of standard input is closed, or it is no longer our parent.
        on_signal: Called with the number of the signal (SIGTERM or SIGINT).
        requests: File descriptor to read them from.
    """

    def __init__(
        self,
        on_line: Callable[[bytes], object],
        on_gone: Callable[[str], object],
        on_signal: Callable[[int], object],
        *,
        requests: int,
    ) -> None:
        self._on_line = on_line
        self._on_gone = on_gone
        self._on_signal = on_signal
        self._requests = requests
        self._parent = os.getppid()
        self._signals, self._signals_in = os.pipe()
        os.set_blocking(self._signals_in, False)

    def start(self) -> None:
        """Take over SIGTERM and SIGINT and start watching; to be called in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave_to_lifeline)
        # The interpreter writes the signal's number here from the signal handler itself, so that a main thread stuck
        # in C does not delay it.
        signal.set_wakeup_fd(self._signals_in, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="scalescope-lifeline", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._signals, select.POLLIN)
        buffer = b""
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(PARENT_CHECK_S * 1000)}
            if self._signals in ready:
                for number in os.read(self._signals, 64):
                    if number in (signal.SIGTERM, signal.SIGINT):
                        self._on_signal(number)
            if self._requests in ready:
                chunk = os.read(self._requests, 65536)
                if not chunk:
                    self._on_gone("the parent closed its end of standard input")
                    return
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self._on_line(line)
            if os.getppid() != self._parent:
                self._on_gone("the parent process is gone")
                return


def _leave_to_lifeline(number: int, frame: object) -> None:
    """Do nothing in the main thread; without a handler the interpreter would not write to the wake-up pipe."""
