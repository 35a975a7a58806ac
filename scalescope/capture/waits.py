"""Notes how long tasks hold their thread while they wait: for a lock, a semaphore, a queue, an actor or a result.

Nearly all waiting of `distributed` is in its `sync`. A wait is added to the task's own record, which the worker sends
to the scheduler anyway. The times of waits are added, too, if the task had submitted tasks or seceded. For tasks
of Prefect, the user's function and known steps of Prefect around it are noted; the remaining time of such a task is
Prefect's. This source text is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import importlib.abc
import inspect
import logging
import os
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from typing import Any

import distributed
from distributed import actor, client, threadpoolexecutor, utils
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import get_worker, thread_state

from scalescope.capture.instrument import Hook, Instrumented

WAIT = "scalescope-wait "  # prefix of an action; the function that waited, a tab and the line follow
HELD, SECEDED = "scalescope-held", "scalescope-seceded"  # actions: waits of tasks with, and without, their thread
SHORT_S = 0.001  # shortest wait, in seconds, that is noted
MOST_TIMES = 1_000  # largest number of waits per task whose times are noted

SENT = "<dynamic-code>"  # `co_filename` of functions sent by value; their globals may have `__file__`
_PACKAGE = os.path.dirname(distributed.__file__)
_LIBRARIES = tuple(filter(None, map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))))
# Per thread. `sync`: whether a wait is being noted; `noted_s`: seconds noted within the current call; `sender`: key of
# the last task that submitted tasks.
_inside = threading.local()
_installed = 0

# Functions of Prefect whose calls are noted, by module and name. A name with a dot begins with a class.
FUNCTION, RAISED, RETRY = "Prefect.function", "Prefect.raised", "Prefect.retry"
SERVER, PERSIST, RELEASE, HASH = "Prefect.server", "Prefect.persist", "Prefect.release", "Prefect.hash"
API = "Prefect.api"
_OF_PREFECT = {
    "prefect.task_engine": {
        "BaseTaskRunEngine.compute_transaction_key": HASH,
        "SyncTaskRunEngine.call_task_fn": FUNCTION,
        "AsyncTaskRunEngine.call_task_fn": FUNCTION,
        "SyncTaskRunEngine.wait_until_ready": RETRY,
        "AsyncTaskRunEngine.wait_until_ready": RETRY,
    },
    "prefect.client.base": {"PrefectHttpxSyncClient.send": API, "PrefectHttpxAsyncClient.send": API},
    "prefect.server.api.server": {"SubprocessASGIServer.start": SERVER},
    "prefect.results": {"ResultStore.persist_result_record": PERSIST, "ResultStore.apersist_result_record": PERSIST},
    "prefect.concurrency._sync": {
        "acquire_concurrency_slots_with_lease": "concurrency",
        "release_concurrency_slots_with_lease": RELEASE,
    },
    "prefect.concurrency._asyncio": {
        "aacquire_concurrency_slots_with_lease": "concurrency",
        "arelease_concurrency_slots_with_lease": RELEASE,
    },
    "prefect.concurrency.sync": {"_acquire_concurrency_slots": "rate_limit"},
    "prefect.concurrency.asyncio": {"aacquire_concurrency_slots": "rate_limit"},
}


class Waits(WorkerPlugin):  # type: ignore[misc]
    """Notes every wait of every task of this process."""

    name = "scalescope-waits"

    def setup(self, worker: Any) -> None:
        # all workers of a process share one installation
        global _installed
        _installed += 1
        if _installed == 1:
            for function, hook in _CALLS:
                _functions.put(inspect.unwrap(function), hook)
            sys.meta_path.insert(0, _after_import)
            for name in _OF_PREFECT:
                if name in sys.modules:
                    _note_calls_of(sys.modules[name])

    def teardown(self, worker: Any) -> None:
        global _installed
        _installed -= 1
        if _installed == 0:
            with suppress(ValueError):
                sys.meta_path.remove(_after_import)
            _functions.restore()


_functions = Instrumented()
_logger = logging.getLogger(__name__)


def _begun(what: str, caller: str = "") -> Any:
    """A hook for the start of a function that waits; with `caller`, only calls from that module count."""

    def begun(*arguments: Any) -> Any:
        key = getattr(thread_state, "key", None)
        if key is None or getattr(_inside, "sync", False):
            return None
        if caller and sys._getframe(3).f_globals.get("__name__") != caller:
            return None
        _inside.sync = True
        holds = getattr(threadpoolexecutor.thread_state, "proceed", True)  # False: the task has seceded
        return key, time.time(), holds, what

    return begun


def _over(token: Any) -> None:
    if token is None:
        return
    key, began, holds, what = token
    _inside.sync = False
    seconds = time.time() - began
    if seconds >= SHORT_S:
        if holds:
            _inside.noted_s = getattr(_inside, "noted_s", 0.0) + seconds
            _note(key, seconds, _described(sys._getframe(2), what))
        if not holds or getattr(_inside, "sender", None) == key:
            _note_times(key, HELD if holds else SECEDED, began, seconds)


def _sends(*arguments: Any) -> None:
    _inside.sender = getattr(thread_state, "key", None)


def _failed(error: Exception) -> None:
    _logger.debug("a wait was not noted: %r", error)


def _entries(key: Any) -> Any:
    """The list `startstops` of a task; None if there is no such task (any more) or distributed is too old."""
    try:
        return get_worker().state.tasks[key].startstops
    except (ValueError, AttributeError, KeyError):
        return None


def _note_times(key: Any, action: str, began: float, seconds: float) -> None:
    entries = _entries(key)
    if entries is not None and len(entries) < MOST_TIMES:
        start = began + getattr(get_worker(), "scheduler_delay", 0.0)
        entries.append({"action": action, "start": start, "stop": start + seconds})


def _note(key: Any, seconds: float, what: str) -> None:
    if (entries := _entries(key)) is None:
        return
    action = WAIT + what
    for entry in entries:
        if entry["action"] == action:
            entry["stop"] += seconds
            return
    entries.append({"action": action, "start": 0.0, "stop": seconds})


# ------------------------------------------------------------------ Prefect


class _AfterImport(importlib.abc.MetaPathFinder):
    """Puts hooks into functions of Prefect as soon as their module is imported, as by a worker's first task."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _OF_PREFECT:
            return None
        found = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            original: Any = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                original(module)
                _note_calls_of(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_after_import = _AfterImport()


def _note_calls_of(module: Any) -> None:
    for name, what in _OF_PREFECT[module.__name__].items():
        class_name, _, function = name.rpartition(".")
        owner = getattr(module, class_name, None) if class_name else module
        original = inspect.getattr_static(owner, function, None)  # None: another release of Prefect
        if inspect.isfunction(original):
            _functions.put(inspect.unwrap(original), Hook(_called(what), end=_returned, failed=_failed))


def _called(what: str) -> Any:
    def called(*arguments: Any) -> Any:
        key = getattr(thread_state, "key", None)
        if key is None:
            return None
        before, _inside.noted_s = getattr(_inside, "noted_s", 0.0), 0.0
        return key, time.time(), before, what, arguments

    return called


def _returned(token: Any) -> None:
    if token is None:
        return
    key, began, before, what, arguments = token
    error, raised = sys.exc_info()[1], ""
    if error is not None:  # Prefect's timeout is no `Exception`
        raised = type(error).__name__ if isinstance(error, Exception) else "TimeoutError"
    seconds = time.time() - began
    own, _inside.noted_s = max(seconds - _inside.noted_s, 0.0), before + seconds
    if what == FUNCTION or own >= SHORT_S:
        _note(key, own, _prefect_action(what, arguments, raised))


def _prefect_action(what: str, args: Any, raised: str) -> str:
    if what == FUNCTION and raised:
        with suppress(AttributeError):  # another release of Prefect
            if args[0].retries < args[0].task.retries:
                return f"{RAISED} {raised}\t"
    if what.startswith("Prefect."):
        return f"{what}\t"
    names = args[0] if args else ""
    names = ", ".join(map(str, names)) if isinstance(names, (list, tuple)) else str(names)
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, _OWN)):
        frame = frame.f_back
    return f'{what}("{names}")\t{_line(frame) if frame else ""}'


_OWN = _note.__code__.co_filename


# ------------------------------------------------------------------ where


def _described(frame: Any, what: str) -> str:
    # the call of `distributed`, a tab, and the user's line: `Semaphore.acquire` and `mine.py:7 in load`
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        owner = type(frame.f_locals["self"]).__name__ + "." if "self" in frame.f_locals else ""
        what = owner + frame.f_code.co_name
        frame = frame.f_back
    called = frame
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    line = frame or called
    return f"{what}\t{_line(line) if line else ''}"


def _line(frame: Any) -> str:
    file = frame.f_code.co_filename
    if file == SENT:
        file = frame.f_globals.get("__file__") or file
    return f"{os.path.basename(file)}:{frame.f_lineno} in {frame.f_code.co_name}"


def _waiting(function: Any, caller: str = "") -> Any:
    return function, Hook(_begun(function.__qualname__, caller), end=_over, failed=_failed)


_CALLS = (
    _waiting(utils.SyncMethodMixin.sync),
    _waiting(actor.sync, caller=actor.__name__),
    _waiting(client.as_completed.__next__),
    _waiting(threadpoolexecutor.rejoin),
    (client.Client._graph_to_futures, Hook(_sends, failed=_failed)),
)
