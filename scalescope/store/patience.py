"""Waits for a server of the store, such as PostgreSQL or object storage, that goes away while a run uses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from scalescope.errors import StoreError
from scalescope.store.failures import AWAY
from scalescope.waiting import patiently

ENDING_S = 4.0  # seconds of patience for the last word of a run that is stopped or has failed
SAY_S = 10.0  # seconds without an answer after which that is said, again and again: records of a trial take some


class HasServer(Protocol):
    """What `outlasting` needs to know of the object whose methods it changes."""

    is_here: bool  # no server has to answer
    where: str
    patience_s: float  # 0: nobody waits
    says: Callable[[str], object]  # takes a sentence every few seconds of waiting


S = TypeVar("S", bound=HasServer)
P = ParamSpec("P")
R = TypeVar("R")


def outlasting(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Have a method, which may be called again, wait for a server that is away.

    Drivers of databases have no limit for a server that stands still, so the wait has one.
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
                cause="Its server stands still, or the network to it.",
                next_step="Check its server, and start the same command again.",
                category=AWAY,
            ),
        )

    return call
