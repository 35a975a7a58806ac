"""Notes how long tasks hold their thread while they wait: for a lock, a semaphore, a queue, an actor, another's result.

All waiting of `distributed` is in its `sync`. The wait is added to the task's own record, which the worker sends to the
scheduler anyway. The source text is sent to workers: the standard library and `distributed` alone.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from typing import Any

import distributed
from distributed import actor, threadpoolexecutor, utils
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import get_worker, thread_state

WAIT = "scalescope-wait "  # begins the action; what was waited for, a tab, and the line follow
SHORT_S = 0.001  # shortest wait that is noted

_PACKAGE = os.path.dirname(distributed.__file__)
_LIBRARIES = tuple(filter(None, map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))))
_inside = threading.local()
_installed = 0


class Waits(WorkerPlugin):  # type: ignore[misc]
    """Notes every wait of every task of this process."""

    name = "scalescope-waits"
    idempotent = True

    def setup(self, worker: Any) -> None:
        # once for all workers of a process
        global _installed
        _installed += 1
        if _installed == 1:
            for owner, original, noting in _REPLACED:
                if owner.sync is original:
                    owner.sync = noting

    def teardown(self, worker: Any) -> None:
        global _installed
        _installed -= 1
        if _installed == 0:
            for owner, original, noting in _REPLACED:
                if owner.sync is noting:
                    owner.sync = original


def _noting(original: Any) -> Any:
    def sync(*args: Any, **options: Any) -> Any:
        key = getattr(thread_state, "key", None)
        if key is None or getattr(_inside, "sync", False):
            return original(*args, **options)
        _inside.sync, began = True, time.time()
        try:
            return original(*args, **options)
        finally:
            _inside.sync = False
            seconds = time.time() - began
            if seconds >= SHORT_S and getattr(threadpoolexecutor.thread_state, "proceed", True):  # it has not seceded
                _note(key, seconds, sys._getframe(1))

    return sync


def _note(key: Any, seconds: float, frame: Any) -> None:
    try:
        entries = get_worker().state.tasks[key].startstops
    except (ValueError, AttributeError, KeyError):  # not a task, an older release, or released meanwhile
        return
    action = WAIT + _described(frame)
    for entry in entries:
        if entry["action"] == action:
            entry["stop"] += seconds
            return
    entries.append({"action": action, "start": 0.0, "stop": seconds})


def _described(frame: Any) -> str:
    # the call of `distributed`, such as `Semaphore.acquire`, a tab, and its line, such as `mine.py:7 in load`
    what = ""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        owner = type(frame.f_locals["self"]).__name__ + "." if "self" in frame.f_locals else ""
        what = owner + frame.f_code.co_name
        frame = frame.f_back
    called = frame
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    line = frame or called
    if line is None:
        return what + "\t"
    return f"{what}\t{os.path.basename(line.f_code.co_filename)}:{line.f_lineno} in {line.f_code.co_name}"


_REPLACED = tuple((owner, owner.sync, _noting(owner.sync)) for owner in (utils.SyncMethodMixin, actor))
