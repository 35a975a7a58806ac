"""What clusters whose scheduler is somewhere else share: waiting for their workers, and saying what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping

import distributed

POLL_S = 0.1

Workers = Mapping[str, int]
"""Address -> threads."""


def census(client: distributed.Client) -> Workers:
    """The workers that the scheduler of a client knows."""
    return {str(address): int(threads) for address, threads in client.nthreads().items()}


def until(client: distributed.Client, workers: int, threads: int, timeout_s: float) -> Workers | None:
    """Wait until there are exactly these workers; returns None then, else those that there are when time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = census(client)
        if list(found.values()) == [threads] * workers:
            return None
        if time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def described(workers: Workers) -> str:
    """How many workers of how many threads, in words: `3 workers of 2 threads`."""
    threads = " or ".join(str(number) for number in sorted(set(workers.values())))
    return f"{len(workers)} workers" + (f" of {threads} threads" if threads else "")


def root_cause(error: BaseException) -> str:
    """The first of a chain of exceptions, in words."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
