"""A limit in real seconds on each phase of the driver's work."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from scalescope.capture.client_thread import collection_deferred


class Watchdog:
    """Calls `on_expiry` when a phase outlasts its limit.

    One thread waits, started once, before a virtual clock has anything to do with the main thread; all clock reading
    happens in it, so that the limits are in real time whatever clock the main thread sees.

    Args:
        on_expiry: Called in the watchdog's thread with the phase and its limit in seconds.
    """

    def __init__(self, on_expiry: Callable[[str, float], object]) -> None:
        self._on_expiry = on_expiry
        self._changed = threading.Condition()
        self._phase: tuple[str, float] | None = None
        self._serial = 0

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="scalescope-watchdog", daemon=True).start()

    def enter(self, phase: str, limit_s: float) -> None:
        """Begin a phase; the one before ends."""
        self._set((phase, limit_s))

    def leave(self) -> None:
        """End the phase; nothing is limited until the next."""
        self._set(None)

    def _set(self, phase: tuple[str, float] | None) -> None:
        with self._changed:
            self._phase = phase
            self._serial += 1
            self._changed.notify()

    def _watch(self) -> None:
        serial = -1
        deadline = 0.0
        while True:
            with self._changed:
                if serial == self._serial:
                    remaining = None if self._phase is None else deadline - time.monotonic()
                    if remaining is None or remaining > 0:
                        self._changed.wait(remaining)
                if serial != self._serial:
                    serial = self._serial
                    deadline = time.monotonic() + (self._phase[1] if self._phase else 0.0)
                    continue
                expired = self._phase
                if expired is None or time.monotonic() < deadline:
                    continue
                self._phase = None
            self._on_expiry(*expired)


def where(thread_id: int, code: object = None) -> str:
    """Where a thread is now, in a few words.

    Args:
        thread_id: Identifier of the thread (`Thread.ident`).
        code: A function whose own line is named too, when it is on the stack.
    """
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
