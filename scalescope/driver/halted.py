"""Notices that processes of a trial stood still: what passed meanwhile is in its makespan, and measures nothing."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from contextlib import suppress
from typing import Self

import psutil

from scalescope.clusters.background import Background

BEAT_S = 0.2
"""Seconds between two looks."""
LEAST_S, PART = 1.0, 0.05
"""A trial is spoilt by more than so many seconds, and more than this part of it. On a host that is merely busy, a
thread waits for a core for tenths of a second."""
ASKS_PER_S = 5
"""A thread that waits for the interpreter lock, which other code holds, asks for it every 5 ms
(`sys.getswitchinterval`), and goes to sleep in between; one that stands still does neither."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former goes on while the host is suspended
_STOPPED = "process {} of the cluster stood still for {{:.1f}} s: stopped"
_THREAD = getattr(resource, "RUSAGE_THREAD", None)


class HaltWatch(Background):
    """While it is entered, watches whether this process, or one below it, stands still; in real time alone.

    A thread asks to be woken at intervals, and is woken late where the process was stopped, frozen or starved of CPU
    (on Linux; elsewhere nothing tells that from waiting for the interpreter lock). Of the processes below, the system
    says whether a signal has stopped them.

    Attributes:
        reason: What stood still for too long, in a sentence; empty where nothing did. Complete once it is left.
    """

    def __init__(self) -> None:
        super().__init__("scalescope-halts")
        self.reason = ""
        self._seconds: dict[str, float] = defaultdict(float)  # by the sentence that says them

    def __enter__(self) -> Self:
        self._below = psutil.Process().children(recursive=True)
        self._began = time.clock_gettime(_CLOCK)
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        limit_s = max(LEAST_S, PART * (time.clock_gettime(_CLOCK) - self._began))
        super().__exit__(None, None, None)
        longest = max(self._seconds, key=self._seconds.__getitem__, default="")
        if longest and self._seconds[longest] > limit_s:
            self.reason = longest.format(self._seconds[longest])

    def _run(self) -> None:
        before, asked, over = self._began, _sleeps(), False
        while not over:
            over = self._over.wait(BEAT_S)  # and look once more: it may have stood still until the end
            now, asks = time.clock_gettime(_CLOCK), _sleeps()
            late_s = now - before - BEAT_S
            if _THREAD is not None and late_s >= LEAST_S and asks - asked < ASKS_PER_S * late_s:
                self._seconds["the driver stood still for {:.1f} s: stopped or starved"] += late_s
            for process in self._below:
                with suppress(psutil.Error):
                    if process.status() == psutil.STATUS_STOPPED:
                        self._seconds[_STOPPED.format(process.pid)] += now - before
            before, asked = now, asks


def _sleeps() -> int:
    """How often this thread has gone to sleep by itself."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw
