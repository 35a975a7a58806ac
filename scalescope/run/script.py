"""Runs an unchanged script, and records and judges the cluster of every Dask client that it makes."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scalescope.errors import InvalidField, ScalescopeError

if TYPE_CHECKING:
    from scalescope.run.recorded_block import Recipient

_DASK = "distributed"


R = TypeVar("R", bound="Recipient")


@dataclass
class ScriptOutcome(Generic[R]):
    """How a script ended, and what the clusters of its clients did."""

    status: int = 0  # its own exit status
    found: list[R] = field(default_factory=list)  # of each cluster, in the order of first use
    problems: list[str] = field(default_factory=list)  # why a cluster could not be diagnosed


def run_script(path: Path, arguments: Sequence[str], recipient: Callable[[], R]) -> ScriptOutcome[R]:
    """Run a script as `python path arguments` would, in this process.

    `recipient` is asked for one for each cluster.

    A diagnosis lasts from the first client of a scheduler to the end of its last client, or of the script. If the
    script raises, its traceback goes to standard error.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise InvalidField("SCRIPT", str(path), f"a Python file that can be read ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        raise InvalidField("SCRIPT", str(path), f"a Python script; {error}") from error
    main = ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    done: ScriptOutcome[R] = ScriptOutcome()
    with _Hooks(code, path.name, done, recipient) as hooks:
        try:
            exec(code, vars(main))  # noqa: S102 - the script, as it was asked for
        except SystemExit as end:
            done.status = _status(end.code)
        except KeyboardInterrupt as error:
            done.status, hooks.error = 130, error
        except Exception as error:  # noqa: BLE001 - it is the script's own, and told as Python tells it
            done.status, hooks.error = 1, error
            sys.excepthook(type(error), error.with_traceback(_own(error.__traceback__, code)), error.__traceback__)
    return done


def _before(original: Callable[..., Any], act: Callable[..., None]) -> Callable[..., Any]:
    """`original`, with `act` on its first argument before."""

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        act(*args[:1])
        return original(*args, **options)

    return wrapped


def _raised() -> BaseException | None:
    error = sys.exc_info()[1]
    return None if isinstance(error, SystemExit) else error


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _own(trace: TracebackType | None, code: CodeType) -> TracebackType | None:
    found = trace
    while found is not None and found.tb_frame.f_code is not code:
        found = found.tb_next
    return found or trace


@dataclass
class _Block:
    stack: contextlib.ExitStack  # ends the recording
    clients: set[str]  # ids of its open clients


class _Hooks(Generic[R]):
    """While open, clients and clusters of this process begin and end diagnoses.

    It imports nothing before the script does, so that settings in the script's first lines take effect.
    """

    def __init__(self, code: CodeType, name: str, done: ScriptOutcome[R], recipient: Callable[[], R]) -> None:
        self.error: BaseException | None = None
        self._code, self._name, self._done, self._recipient = code, name, done, recipient
        self._blocks: dict[str, _Block] = {}
        self._pid, self._busy = os.getpid(), False
        self._lock = threading.RLock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> _Hooks[R]:
        if _DASK in sys.modules:
            self._hook()
        else:
            finder = _AfterImport(self._hook)
            sys.meta_path.insert(0, finder)
            self._open.callback(_remove, finder)
        return self

    def __exit__(self, *exception: object) -> None:
        for address in [*self._blocks]:
            self._end(address, self.error)
        self._open.close()

    def _hook(self) -> None:
        from distributed import Client

        from scalescope.capture.partition_calls import noted

        self._notes = self._open.enter_context(noted(_imported(self._code)))
        hooks = {
            "__init__": self._made(Client.__init__),
            "close": _before(Client.close, self._leave),
            "shutdown": _before(Client.shutdown, self._shut_down),
        }
        for name, hook in hooks.items():
            self._open.callback(setattr, Client, name, getattr(Client, name))
            setattr(Client, name, hook)

    def _made(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def made(client: Any, *args: Any, **options: Any) -> None:
            original(client, *args, **options)
            if client.asynchronous and threading.current_thread() is threading.main_thread():
                self._done.problems.append("An asynchronous client cannot be diagnosed.")
            elif self._is_theirs() and not client.asynchronous:
                self._begin(client)

        return made

    def _leave(self, client: Any) -> None:
        for address, block in [*self._blocks.items()]:
            block.clients.discard(client.id)
            if not block.clients and self._is_theirs():
                self._end(address, _raised())

    def _shut_down(self, client: Any) -> None:
        if client.scheduler is not None:
            self._over(str(client.scheduler.address))

    def _over(self, address: str) -> None:
        if self._is_theirs():
            self._end(address, _raised())

    def _is_theirs(self) -> bool:
        """Whether the script did it: not the recorder, a forked process, or an event loop, which must not wait."""
        return not self._busy and os.getpid() == self._pid and asyncio._get_running_loop() is None

    def _begin(self, client: Any) -> None:
        from scalescope.capture.client_thread import ClientWatch
        from scalescope.run.block import cluster_of, observed

        address = str(client.scheduler.address)
        with self._lock:
            if block := self._blocks.get(address):
                block.clients.add(client.id)
                return
            self._busy, stack = True, contextlib.ExitStack()
            try:
                watch = ClientWatch(SimpleNamespace(__code__=self._code))  # type: ignore[arg-type]  # its code is all
                recorded = observed(client, self._called(), "script", self._recipient(), watch, self._notes)
                self._done.found.append(stack.enter_context(recorded))
            except (ScalescopeError, OSError, TimeoutError, RuntimeError) as error:
                self._problem(address, error)
                return
            finally:
                self._busy = False
            self._blocks[address] = _Block(stack, {client.id})
            if (cluster := cluster_of(client)) is not None:
                cluster.close = _before(cluster.close, lambda *_: self._over(address))

    def _end(self, address: str, error: BaseException | None) -> None:
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is None:
                return
            self._busy = True
            try:
                block.stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
            except (ScalescopeError, OSError, TimeoutError, RuntimeError) as problem:
                if problem is not error:
                    self._problem(address, problem)
            finally:
                self._busy = False

    def _called(self) -> str:
        number = len(self._done.found)
        return f"{self._name}, cluster {number + 1}" if number else self._name

    def _problem(self, address: str, error: Exception) -> None:
        told = error.line if isinstance(error, ScalescopeError) else traceback.format_exception_only(error)[-1].strip()
        self._done.problems.append(f"The cluster at {address} could not be diagnosed: {told}")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once, when the script has imported `distributed`."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _DASK:
            return None
        _remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, call = spec.loader, self._call
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            call()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _remove(finder: importlib.abc.MetaPathFinder) -> None:
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(finder)


def _imported(code: CodeType) -> frozenset[str]:
    def names(each: CodeType) -> Iterator[str]:
        for step in dis.get_instructions(each):
            if step.opname == "IMPORT_NAME":
                yield str(step.argval)
        for constant in each.co_consts:
            if isinstance(constant, CodeType):
                yield from names(constant)

    return frozenset(names(code))
