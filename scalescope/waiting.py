"""Waits for control planes that are away, such as during a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from scalescope.errors import ScalescopeError

PATIENCE_S = 600.0  # seconds for which a control plane or the server of a store may be away before that is an error
CLOSING_S = 2.5  # seconds for an answer when a cluster closes: its driver is killed after 9
AGAIN_S = 5.0  # seconds between a question that got no answer and the next try
SAY_S = 4.0  # seconds between two messages that there is no answer yet

T = TypeVar("T")


def patiently(
    ask: Callable[[], T],
    *,
    who: str,
    is_silent: Callable[[ScalescopeError], bool],
    says: Callable[[str], object],
    stopped: threading.Event,
) -> T:
    """Call `ask` until it gets an answer, for `PATIENCE_S` at most; `says` is told every few seconds why it waits."""
    deadline = time.monotonic() + PATIENCE_S
    with saying(f"{who} does not answer: waiting for it, at most {PATIENCE_S / 60:g} min", says):
        while True:
            try:
                return ask()
            except ScalescopeError as error:
                if not is_silent(error) or time.monotonic() > deadline or stopped.wait(AGAIN_S):
                    raise


@contextmanager
def saying(words: str, says: Callable[[str], object]) -> Iterator[None]:
    """Say meanwhile, every few seconds, what is waited for."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(SAY_S):
            says(words)

    thread = threading.Thread(target=say, name="scalescope-patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
