"""Waiting for what a test needs, so that no test depends on the speed of the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 240.0


def wait_for(
    condition: Callable[[], Any],
    what: str | Callable[[], object] = "",
    seconds: float = PATIENCE_S,
    look_s: float = 0.1,
) -> Any:
    """What a condition returns as soon as that is true; `what` is the error if it never is."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, (
            what() if callable(what) else what or f"not after {seconds:.0f} s: {condition}"
        )
        time.sleep(look_s)
    return found
