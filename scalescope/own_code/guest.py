"""Records the clusters of a script, as a guest in the script's own process.

Nothing here raises an error in the script, and no frame of this module appears in the script's tracebacks. Errors are
written to the folder (`scalescope.own_code.record`), and end the recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from scalescope.capture.instrument import Hook, Instrumented
from scalescope.capture.partition_calls import Noting
from scalescope.capture.unheard import unheard
from scalescope.capture.user_code import line_of_user
from scalescope.errors import ScalescopeError
from scalescope.own_code import record

if TYPE_CHECKING:
    from distributed import Client

    from scalescope.own_code.block import Block

MOST = 1_000  # most clusters of a script that are recorded
SHORT_S = 0.01  # seconds; shorter calls that close a client or cluster are not noted
LAST_S = 20.0  # seconds for which Python's exit waits for recordings to end
_OTHERS = ("Client-worker-", "Client-scalescope-")  # prefixes of the ids of clients of tasks and of recorders


class Guest:
    """Begins and ends recordings where the script makes and closes clients and clusters."""

    def __init__(self, folder: str) -> None:
        self.schedulers: dict[str, list[float]] = {}  # Dask's own schedulers: calls and seconds, by module
        self._folder, self._pid = Path(folder), os.getpid()
        self._functions = Instrumented()
        self._noting = Noting(self._failed)
        self._recordings: dict[str, _Recording] = {}  # recordings by address of the scheduler
        self._behind: list[threading.Thread] = []  # background threads that end recordings
        # By cluster: the line that made it (empty if a client did), and the `time.monotonic` when that began
        self._lines = weakref.WeakKeyDictionary[Any, tuple[str, float]]()
        self._clients = self._count = 0  # number of clients so far, and of recorded clusters
        self._lock = threading.RLock()
        self._own = threading.local()  # attribute `now`: whether this thread runs our code
        self._told: set[str] = set()

    def imported(self, module: ModuleType) -> None:
        """Install hooks in a module that has just been imported."""
        if module.__name__ == "dask.threaded":  # all of Dask's own schedulers import this small module
            hook = Hook(self._scheduler_began, leave=self._scheduler_ended, failed=self._failed)
            self._functions.put(module.get_async, hook)
            return
        self._noting.add(module)
        if module.__name__ != "distributed":
            return
        client, cluster, of_workers = module.Client, module.deploy.Cluster, module.SpecCluster
        hooks = {
            client.__init__: Hook(self._client_begins, leave=self._client_made, failed=self._failed),
            client._start: Hook(leave=self._client_started, failed=self._failed),
            client.close: Hook(self._client_closes, end=self._closed, failed=self._failed),
            client._close: Hook(self._client_is_closing, failed=self._failed),
            client.shutdown: Hook(self._client_shuts_down, end=self._closed, failed=self._failed),
            cluster.__init__: Hook(self._cluster_made, failed=self._failed),
            cluster.close: Hook(self._cluster_closes, end=self._closed, failed=self._failed),
            of_workers._close: Hook(self._cluster_is_closing, failed=self._failed),
        }
        for function, hook in hooks.items():
            if not self._functions.put(inspect.unwrap(function), hook):
                self._stopped(f"Scalescope cannot observe {function.__qualname__} in this release of distributed")
        program_ends, python_ends = (unheard(each, self._failed) for each in (self._program_ends, self._python_ends))
        threading._register_atexit(program_ends)  # type: ignore[attr-defined]  # before executors end
        _at_exit(python_ends)

    # ------------------------------------------------------------ what the script does

    def _client_begins(self, client: Any, *others: Any) -> Any:
        if not self._clients and not getattr(self._own, "now", False):
            self._say(client_at=line_of_user(sys._getframe(3)))
        self._clients += 1
        return client

    def _client_made(self, client: Any, nothing: None) -> None:
        if not client._asynchronous and self._is_theirs(client):
            self._begin(client, line_of_user(sys._getframe(3)))

    def _client_started(self, arguments: Any, client: Any) -> Coroutine[Any, Any, None] | None:
        if client is None or not client._asynchronous or not self._is_theirs(client):
            return None
        return _in_thread(lambda: self._begin(client, ""))

    def _client_closes(self, client: Any, *others: Any) -> float:
        if not client._asynchronous and not _is_loop_of(client):
            self._ends(self._left_by(client.id))
        return time.monotonic()

    def _closed(self, began: float) -> None:
        seconds = time.monotonic() - began
        if seconds >= SHORT_S and not getattr(self._own, "now", False) and os.getpid() == self._pid:
            self._say(closed_s=seconds)

    def _client_is_closing(self, client: Any, *others: Any) -> Coroutine[Any, Any, None] | None:
        if client._asynchronous and (addresses := self._left_by(client.id)):
            error = _raised()
            return _in_thread(lambda: self._end(addresses, error))
        return None

    def _client_shuts_down(self, client: Any) -> float:
        if client.scheduler is not None and not _is_loop_of(client):
            self._ends([str(client.scheduler.address)])
        return time.monotonic()

    def _cluster_made(self, cluster: Any, *others: Any) -> None:
        if len(self._lines) < MOST:
            self._lines[cluster] = line_of_user(sys._getframe(3)), time.monotonic()

    def _cluster_closes(self, cluster: Any, *others: Any) -> float:
        if not _is_loop_of(cluster):
            self._ends([_address(cluster)])
        return time.monotonic()

    def _cluster_is_closing(self, cluster: Any, *others: Any) -> Coroutine[Any, Any, None] | None:
        if (address := _address(cluster)) in self._recordings:
            error = _raised()
            return _in_thread(lambda: self._end([address], error))
        return None

    def _scheduler_began(self, *arguments: Any) -> tuple[str, float]:
        return str(sys._getframe(3).f_globals.get("__name__")), time.monotonic()

    def _scheduler_ended(self, token: tuple[str, float], result: Any) -> Any:
        module, began = token
        counts = self.schedulers.setdefault(module, [0, 0.0])
        counts[:] = counts[0] + 1, counts[1] + time.monotonic() - began
        return result

    def _program_ends(self) -> None:
        executors = sys.modules.get("concurrent.futures.thread")
        working = {threading.main_thread(), *getattr(executors, "_threads_queues", ())}
        if not any(each for each in threading.enumerate() if not each.daemon and each not in working):
            self._python_ends()

    def _python_ends(self) -> None:
        error = getattr(sys, "last_value", None)
        try:
            self._end([*self._recordings], error)
            for thread in self._behind:
                thread.join(LAST_S)
        except Exception as failure:  # noqa: BLE001 - Python would print it
            self._failed(failure)
        if isinstance(error, KeyboardInterrupt):
            _interrupted_again()

    # ------------------------------------------------------------ recordings

    def _is_theirs(self, client: Any) -> bool:
        """Whether the script made the client, and not the recorder, a task or a forked process."""
        return not (getattr(self._own, "now", False) or client.id.startswith(_OTHERS)) and os.getpid() == self._pid

    def _begin(self, client: Client, line: str) -> None:
        address = str(client.scheduler.address)
        with self._lock:
            if address in self._recordings:
                self._recordings[address].clients.add(client.id)
                return
            if self._count == MOST:
                self._stopped(f"only the first {MOST} clusters are recorded")
                return
            self._count += 1
            number, recording = self._count, _Recording({client.id})
            self._recordings[address] = recording
        try:
            with self._ours():
                recording.block = self._begun(client, number, line)
        except BaseException:
            with self._lock:
                self._recordings.pop(address, None)
            raise
        with self._lock:
            is_over = self._recordings.get(address) is not recording
        if is_over:  # another thread has closed the clients meanwhile
            self._close(recording, None)

    def _begun(self, client: Client, number: int, line: str) -> Block:
        began = time.monotonic()
        from scalescope.capture.client_thread import ClientWatch
        from scalescope.own_code.block import Block, cluster_of

        cluster = cluster_of(client)
        if known := self._lines.get(cluster) if cluster is not None else None:
            line = known[0] or line
            self._say(cluster=number, made=line, start_s=began - known[1])
        main = sys.modules["__main__"]
        file = str(getattr(main, "__file__", None) or "python")
        name = os.path.basename(file) if number == 1 else f"{os.path.basename(file)}, cluster {number}"
        watch = None
        if not client._asynchronous:
            code = compile("", file, "exec")
            watch = ClientWatch(SimpleNamespace(__code__=code), address=str(client.scheduler.address))  # type: ignore[arg-type]
        folder = self._folder / str(number)
        folder.mkdir(mode=0o700)
        processes = {os.getpid(), os.getppid()}
        options: dict[str, Any] = {"watch": watch, "notes": self._noting.notes, "made": line, "processes": processes}
        options["gives_way"] = partial(self._end, [str(client.scheduler.address)], None)
        block = Block(client, folder, name, "script", says=self._hangs, failed=self._failed, **options)
        block.begin()
        self._follow(cluster)
        return block

    def _follow(self, cluster: Any) -> None:
        """Notice when a cluster is closed whose class overrides `close`."""
        for each in type(cluster).__mro__:
            close = vars(each).get("close")
            if close is not None and not each.__module__.startswith("distributed."):
                self._functions.put(close, Hook(self._cluster_closes, failed=self._failed))

    def _left_by(self, client: str) -> list[str]:
        """Forget a client; returns addresses of schedulers that have no client left."""
        left = []
        with self._lock:
            for address, recording in self._recordings.items():
                if client in recording.clients:
                    recording.clients.discard(client)
                    left += [] if recording.clients else [address]
        return left

    def _ends(self, addresses: list[str]) -> None:
        """End recordings before the hooked function goes on; in another thread if waiting could last forever.

        Waiting could last forever if the scheduler needs this thread's event loop, or if the garbage collector closes
        the client, because that may happen in any thread, even in the recorder's.
        """
        known = [address for address in addresses if address in self._recordings]
        if not known or sys.is_finalizing():  # while Python exits, a new thread would never start
            return
        if asyncio._get_running_loop() is None and sys._getframe(4).f_code.co_name != "__del__":
            self._end(known, _raised())
            return
        end = unheard(partial(self._end, known, None), self._failed)  # else errors of this thread would be lost
        self._behind.append(threading.Thread(target=end, name="scalescope", daemon=True))
        self._behind[-1].start()

    def _end(self, addresses: list[str], error: BaseException | None) -> None:
        if os.getpid() != self._pid or getattr(self._own, "now", False):
            return
        for address in addresses:
            with self._lock:
                recording = self._recordings.pop(address, None)
            if recording is not None and recording.block is not None:
                self._close(recording, error)

    def _close(self, recording: _Recording, error: BaseException | None) -> None:
        if recording.block is not None:
            with self._ours():
                recording.block.end(error)

    def _ours(self) -> _Ours:
        return _Ours(self._own)

    # ------------------------------------------------------------ what is said

    def _hangs(self, found: Any, now: float) -> None:
        self._say(hang=asdict(found), now=now)

    def _failed(self, error: Exception) -> None:
        told = error.line if isinstance(error, ScalescopeError) else traceback.format_exception_only(error)[-1].strip()
        self._stopped(told)

    def _stopped(self, why: str) -> None:
        if why not in self._told and os.getpid() == self._pid:
            self._told.add(why)
            self._say(stopped=why)

    def _say(self, **event: Any) -> None:
        with contextlib.suppress(Exception):  # for example, a full disk: it cannot be reported
            record.say(self._folder, event)


@dataclass
class _Recording:
    clients: set[str]  # ids of open clients of the scheduler
    block: Block | None = None  # None until the recording has begun


class _Ours:
    """Marks that this thread runs our code, and keeps its imports from writing bytecode into the script's folders."""

    _lock, _open, _before = threading.Lock(), 0, False  # shared by all threads

    def __init__(self, own: threading.local) -> None:
        self._own = own

    def __enter__(self) -> None:
        self._own.now = True
        with _Ours._lock:
            if not _Ours._open:
                _Ours._before = sys.dont_write_bytecode
            _Ours._open += 1
            sys.dont_write_bytecode = True

    def __exit__(self, *exception: object) -> None:
        self._own.now = False
        with _Ours._lock:
            _Ours._open -= 1
            if not _Ours._open:
                sys.dont_write_bytecode = _Ours._before


def _at_exit(function: Callable[[], None]) -> None:
    import atexit

    atexit.register(function)


def _interrupted_again() -> None:
    """Make Python exit as interrupted: after Ctrl-C, any later `eval` or `exec` makes Python forget the interrupt."""
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102 - our own text


def _raised() -> BaseException | None:
    error = sys.exc_info()[1]
    return None if isinstance(error, SystemExit) else error


def _address(cluster: Any) -> str:
    try:
        return str(cluster.scheduler_address)
    except (AttributeError, ValueError):
        return ""


def _is_loop_of(each: Any) -> bool:
    """Whether this thread runs the event loop of the client or cluster, so that waiting would block it."""
    running = asyncio._get_running_loop()
    return running is not None and running is getattr(each.loop, "asyncio_loop", None)


async def _in_thread(function: Callable[[], None]) -> None:
    """Call a function that blocks, while the event loop goes on."""
    done: Future[None] = Future()

    def call() -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - the hook gets the error
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=call, name="scalescope", daemon=True).start()
    await asyncio.wrap_future(done)
