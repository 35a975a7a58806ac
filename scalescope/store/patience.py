"""Waits for a server of the store, such as PostgreSQL or object storage, that goes away while a run uses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from scalescope.errors import StoreError
from scalescope.store.failures import AWAY
from scalescope.waiting import patiently

ENDING_S = 4.0  # seconds to wait for a server when a stopped or failed run saves its final state
SAY_S = 10.0  # seconds until a wait is reported, and between reports; saving a trial takes some seconds anyway


class HasServer(Protocol):
    """An object whose methods `outlasting` can wrap."""

    is_here: bool  # True if no server has to answer
    where: str
    patience_s: float  # longest wait in seconds; 0: none
    says: Callable[[str], object]  # takes a sentence every few seconds of waiting


S = TypeVar("S", bound=HasServer)
P = ParamSpec("P")
R = TypeVar("R")


def outlasting(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method wait for a server that is away; the method must be safe to call again.

    The wait has a limit, because database drivers would wait forever for a server that hangs.
    """

    @wraps(method)
    def call(store: S, /, *arguments: P.args, **named: P.kwargs) -> R:
        if store.is_here or not store.patience_s:
            return method(store, *arguments, **named)
        return patiently(
            lambda: method(store, *arguments, **named),
            who="The server of the store",
            is_silent=lambda error: error.category == AWAY,
            says=store.says,
            within_s=store.patience_s,
            say_s=SAY_S,
            overdue=lambda: StoreError(
                "The store does not answer",
                where=store.where,
                cause="The store's server hangs, or the network to the server is down.",
                next_step="Check the server, and start the same command again.",
                category=AWAY,
            ),
        )

    return call
