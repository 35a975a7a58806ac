"""Waits for control planes and for servers of stores that are away, such as during a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from scalescope.errors import ScalescopeError

PATIENCE_S = 600.0  # seconds for which a control plane or the server of a store may be away before that is an error
CLOSING_S = 2.5  # seconds for an answer when a cluster closes: its driver is killed after 9 s
AGAIN_S = 5.0  # seconds between a question that got no answer and the next try
AT_LEAST_S = 0.5  # least time limit of a call, in seconds, even if the patience is over
SAY_S = 4.0  # seconds between two messages that there is no answer yet

T = TypeVar("T")


def patiently(
    ask: Callable[[], T],
    *,
    who: str,
    is_silent: Callable[[ScalescopeError], bool],
    says: Callable[[str], object],
    stopped: threading.Event | None = None,
    within_s: float | None = None,  # None: `PATIENCE_S`
    say_s: float | None = None,  # seconds between two messages; None: `SAY_S`
    overdue: Callable[[], ScalescopeError] | None = None,  # makes the error of a call that has not ended in time
) -> T:
    """Call `ask` until it gets an answer, for `within_s` at most; `says` gets the reason of the wait every few seconds.

    Raises the error of `ask` after `within_s`, once `stopped` is set, or at once if the error is not `is_silent`. With
    `overdue`, `ask` runs in a thread, which stays if the server never answers.
    """
    within_s, stopped = PATIENCE_S if within_s is None else within_s, stopped or threading.Event()
    deadline = time.monotonic() + within_s
    longest = f"{within_s / 60:g} min" if within_s >= 60 else f"{within_s:g} s"
    with saying(f"{who} does not answer; waiting at most {longest} for an answer", says, say_s):
        while True:
            try:
                return _within(ask, deadline, overdue) if overdue else ask()
            except ScalescopeError as error:
                if not is_silent(error) or time.monotonic() > deadline or stopped.wait(AGAIN_S):
                    raise


def _within(ask: Callable[[], T], deadline: float, overdue: Callable[[], ScalescopeError]) -> T:
    answer: Future[T] = Future()

    def call() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=call, name="scalescope-patient-call", daemon=True).start()
    try:
        return answer.result(max(deadline - time.monotonic(), AT_LEAST_S))
    except TimeoutError:
        if answer.done():  # the `TimeoutError` came from `ask`, not from the wait
            raise
        raise overdue() from None


@contextmanager
def saying(words: str, says: Callable[[str], object], say_s: float | None = None) -> Iterator[None]:
    """Say `words` every few seconds while the block runs."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(say_s or SAY_S):
            says(words)

    thread = threading.Thread(target=say, name="scalescope-patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
