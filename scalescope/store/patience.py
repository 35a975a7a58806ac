"""Waits for a server of the store, such as PostgreSQL or object storage, that goes away while a run uses it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from scalescope.errors import StoreError
from scalescope.store.failures import AWAY
from scalescope.waiting import AGAIN_S

ENDING_S = 4.0  # the same for the last word of a run that is stopped or has failed
SAY_S = 10.0  # seconds without an answer after which that is said, again and again
AT_LEAST_S = 0.5  # seconds that a live server may take


class HasServer(Protocol):
    """What `outlasting` needs to know of the object whose methods it changes."""

    is_here: bool  # no server has to answer
    where: str
    patience_s: float  # 0: nobody waits
    says: Callable[[str], object]  # told while a server is waited for


S = TypeVar("S", bound=HasServer)
P = ParamSpec("P")
R = TypeVar("R")


def outlasting(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Have a method, which may be called again, wait for a server that is away."""

    @wraps(method)
    def call(store: S, /, *arguments: P.args, **named: P.kwargs) -> R:
        if store.is_here or not store.patience_s:
            return method(store, *arguments, **named)
        deadline = time.monotonic() + store.patience_s
        while True:
            try:
                return _answer(store, deadline, lambda: method(store, *arguments, **named))
            except StoreError as error:
                if error.category != AWAY or time.monotonic() > deadline:
                    raise
                store.says(_waits(store, error.what))
            time.sleep(AGAIN_S)

    return call


def _answer(store: HasServer, deadline: float, ask: Callable[[], R]) -> R:
    """Ask in a thread: a server that stands still never ends a call, and drivers of databases have no limit for it."""
    answer: Future[R] = Future()

    def call() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=call, name="scalescope-store", daemon=True).start()
    while True:
        try:
            return answer.result(min(SAY_S, max(deadline - time.monotonic(), AT_LEAST_S)))
        except TimeoutError:
            if answer.done():  # the call itself raised it
                raise
        if time.monotonic() > deadline:
            raise StoreError(
                "The store does not answer",
                where=store.where,
                cause="Its server stands still, or the network to it.",
                next_step="Check its server, and start the same command again.",
                category=AWAY,
            )
        store.says(_waits(store, "The store does not answer"))


def _waits(store: HasServer, what: str) -> str:
    return f"{what}: waiting for its server, at most {store.patience_s:g} s"
