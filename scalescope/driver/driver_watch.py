"""Notices events that must end the driver: its parent is gone, a signal arrives, or a phase exceeds its time limit.

A separate thread does this, because the main thread runs the workload. This thread starts before a virtual clock is
installed in the main thread, so it runs in real time.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

from scalescope.capture.deferred_collection import collection_deferred
from scalescope.driver.channel import real_seconds

# Seconds between checks of the parent. The pipe tells at once that the parent is gone, unless a forked sibling holds it
# open. Linux's death signal does not help: it is sent when the *thread* that started the driver ends.
PARENT_CHECK_S = 0.5

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class DriverWatch:
    """Reads request lines, and reports events that must end the driver. Callbacks run in the watching thread."""

    def __init__(
        self,
        requests: int,  # file descriptor that request lines come from
        *,
        on_line: Callable[[bytes], object],
        on_gone: Callable[[str], object],  # called once: standard input has ended, or the parent is gone
        on_signal: Callable[[int], object],
        on_expiry: Callable[[str, float], object],  # (phase, limit in real seconds) of a phase that outlasted its limit
    ) -> None:
        self._requests = requests
        self._on_line, self._on_gone, self._on_signal, self._on_expiry = on_line, on_gone, on_signal, on_expiry
        self._phase: tuple[str, float, float] | None = None  # name, limit and end, in real seconds
        self._parent = os.getppid()
        self._wakeups, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def start(self) -> None:
        """Handle SIGTERM and SIGINT, and start watching; must be called in the main thread."""
        for number in SIGNALS:
            signal.signal(number, _leave_to_watch)
        # Python's C handler writes the signal's number to this pipe, even while the main thread is stuck in C code.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="scalescope-driver-watch", daemon=True).start()

    def enter(self, phase: str, limit_s: float) -> None:
        """Begin a phase with a limit in real seconds, and end the previous one."""
        self._phase = phase, limit_s, real_seconds() + limit_s
        with suppress(BlockingIOError):  # the pipe is full: the thread will wake up anyway
            os.write(self._wake, b"\0")

    def leave(self) -> None:
        self._phase = None

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._wakeups, select.POLLIN)
        buffer, gone, expired = b"", "", None
        while True:
            phase = self._phase
            if phase is expired:
                phase = None
            left_s = PARENT_CHECK_S if phase is None else max(min(PARENT_CHECK_S, phase[2] - real_seconds()), 0)
            ready = {descriptor for descriptor, _ in poll.poll(left_s * 1000)}
            if self._wakeups in ready:
                for number in os.read(self._wakeups, 64):
                    if number in SIGNALS:
                        self._on_signal(number)
            if self._requests in ready:
                chunk = os.read(self._requests, 65536)
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self._on_line(line)
            if not gone:
                if self._requests in ready and not chunk:
                    gone = "the parent closed its end of standard input"
                elif os.getppid() != self._parent:
                    gone = "the parent process is gone"
                if gone:
                    poll.unregister(self._requests)
                    self._on_gone(gone)
            if phase is not None and phase is self._phase and real_seconds() >= phase[2]:
                expired = phase
                self._on_expiry(*phase[:2])


def where(thread_id: int, code: object = None) -> str:
    """The line that a thread executes, preceded by its line in the function `code` if that is on the stack."""
    with collection_deferred():
        frame = sys._current_frames().get(thread_id)
        if frame is None:
            return "the thread has ended"
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    innermost = stack[0]
    text = f"{innermost.name} ({innermost.filename}:{innermost.lineno})"
    own = getattr(code, "__code__", None)
    if own is not None:
        for entry in stack:
            if entry.filename == own.co_filename and entry.name == own.co_name and entry is not innermost:
                return f"{entry.name} ({entry.filename}:{entry.lineno}), waiting in {text}"
    return text


def _leave_to_watch(number: int, frame: object) -> None:
    """Do nothing: the watching thread reads the signal from the pipe."""
