"""Tells whether calls of Dask's clients and clusters go to our scheduler or to another one.

Attributes are read from `__dict__`, because Dask's properties may create clients, and because an object that another
thread is creating has only some attributes. The names are those of distributed 2023.5 to 2026.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import distributed
from distributed.core import coerce_to_address
from distributed.deploy.cluster import Cluster

_BEGINNING = ("newly-created", "connecting")  # statuses of a client before its first connection


class OwnScheduler:
    """Tells whether calls go to the scheduler at `address` or to another one."""

    def __init__(self, address: str) -> None:
        self._names = {address}
        with suppress(Exception):  # another thread may be creating or closing a client
            for client in list(distributed.Client._instances):
                names = _names(client) or set()
                self._names |= names if address in names else set()

    def is_another(self, frame: FrameType) -> bool | None:
        """Whether this frame belongs to a call for another cluster; None if the frame does not tell."""
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "distributed":
            return None
        try:
            names = _names(_subject(frame))
        except Exception:  # noqa: BLE001 - another thread makes or closes the object
            return None
        return None if names is None else not names & self._names


def _subject(frame: FrameType) -> object:
    found = frame.f_locals
    if frame.f_code.co_name == "wait" and "fs" in found:  # it has no `self`; its inner calls go to the default client
        return _first(found["fs"])
    return found.get("self")


def _first(futures: object) -> object:
    return next(iter(futures), None) if isinstance(futures, (list, tuple, set, dict)) else futures


def _names(owner: object) -> set[str] | None:
    """Address and id of a Dask object's scheduler; empty while the object is being made, None if unknown."""
    state: dict[str, Any] = getattr(owner, "__dict__", {})
    if isinstance(owner, Cluster):
        if state.get("scheduler_comm") is None:
            return set()
        return _known(owner.scheduler_address, owner.scheduler_info)
    if isinstance(owner, distributed.Client):
        return _of_client(state)
    if isinstance(owner, distributed.as_completed):  # the futures' client, since `loop` is the default client's
        return _names(_first(state["futures"]))
    for name in ("_client", "client"):
        if isinstance(client := state.get(name), distributed.Client):
            return _names(client)
    return _known(getattr(state.get("_scheduler"), "address", ""), {}) or None  # a semaphore or lock


def _of_client(state: Mapping[str, Any]) -> set[str] | None:
    address = getattr(state.get("scheduler"), "address", "")
    if found := _known(address, state.get("_scheduler_identity") or {}):
        return found
    if state.get("status") not in _BEGINNING or "_start_arg" not in state or state.get("scheduler_file"):
        return None
    if state.get("cluster") is not None:
        return _names(state["cluster"])
    return set() if state["_start_arg"] is None else {coerce_to_address(state["_start_arg"])}


def _known(address: str, identity: Mapping[str, Any]) -> set[str]:
    return {str(name) for name in (address, identity.get("id")) if name}
