"""Stacks in which the worker's own profiler saw the threads of tasks, by task prefix.

A worker of `distributed` samples the stacks of its task threads every 10 ms. Its profile lacks the innermost function
and does not tell lines apart: this module adds both. Coroutine functions run on the worker's event loop, which the
profile does not cover: while one of them runs, a thread of this module samples the loop every 10 ms, too. Calls that
read something are counted by their arguments: tasks with equal calls repeat work that could be done once. This source
text is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import dis
import io
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from dask.utils import key_split
from distributed import profile, worker
from distributed.diagnostics.plugin import WorkerPlugin

from scalescope.capture.deferred_collection import collection_deferred
from scalescope.capture.instrument import Hook, Instrumented

NAME = "scalescope-inside"
DEEPEST = 100  # most frames of a stack that are examined, from the innermost, as in `distributed`
OUTER, INNER = 25, 15  # outermost and innermost frames that are kept of a long stack
STACKS, CUT = 60, 8  # number of most frequent stacks of a prefix that stay whole; frames kept of others
PREFIXES = 50  # largest number of reported prefixes: those with most samples

OFF = "the profiler of the workers is off (distributed.worker.profile.enabled)"

COROUTINE = "event-loop"  # first frame of stacks of coroutine functions, which run on the event loop
COROUTINE_S = 0.01  # seconds between two samples of an event loop that runs a coroutine function
LINGER_S = 0.5  # seconds after the last coroutine function until the sampling thread ends

SENT = "<dynamic-code>"  # `co_filename` of functions sent by value; their globals may have `__file__`
# Functions of a worker that run a task; the task's key and the worker are among their variables.
_RUNS_TASKS = ("_run_task", "apply_function")  # the second before distributed 2024.9
# Prefixes of the names of library functions that read something
_READING = (
    *("load", "read", "open", "connect", "recv", "scan", "glob", "listdir", "walk", "parse", "fetch", "request"),
    *("from_pretrained", "stat", "do_handshake"),
)
# Prefixes of the names of the user's own functions that set something up
_SETTING_UP = ("load", "open", "connect", "init", "__init__", "setup", "set_up", "download", "read", "parse", "build")
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO)
CALLS, TOLD_CALLS = 50, 10  # if a prefix has more calls, those seen in one task are dropped; most calls reported
COUNTED = 500  # largest number of tasks per prefix whose calls are counted
# Parts of the names of parameters: calls with such a parameter are not counted, since its value may be a secret
_SECRETS = ("passw", "passphrase", "secret", "token", "credential", "_key", "auth")
TEXT = 200  # most characters of an argument that are compared
# Modules of frames between the worker and the task's function
_DISPATCH = ("dask._task_spec.", "dask.core.", "dask.optimization.", "dask.utils.apply")
_FOLDERS = tuple(os.path.join(path, "") for path in map(sysconfig.get_path, ("stdlib", "platstdlib")) if path)
_installed = 0
_plugins: weakref.WeakKeyDictionary[Any, InsideTasks] = weakref.WeakKeyDictionary()  # plugins by worker of this process


class InsideTasks(WorkerPlugin):  # type: ignore[misc]
    """Collects samples of the threads of tasks; `taken` returns those since its last call."""

    name = NAME

    def setup(self, worker: Any) -> None:
        self.worker = worker
        _plugins[worker] = self
        _count(+1)
        self.begin()

    def teardown(self, worker: Any) -> None:
        _plugins.pop(worker, None)
        _count(-1)

    def begin(self) -> None:
        self.on_loop: dict[str, Counter[str]] = {}  # stacks of coroutine functions on the event loop, by prefix
        self.calls: dict[str, _SameCalls] = {}  # calls that read something, by prefix
        self.waited = _waited_for_a_core(self.worker)
        if "profile" in self.worker.periodic_callbacks:
            self.worker.cycle_profile()  # closes the profile of earlier samples

    def taken(self, since: float) -> dict[str, Any]:
        """Samples by stack and prefix since a time of the scheduler's clock.

        Drops all samples. A stack is its frames from the outermost on, joined by `;`: `my_job.py:61 load` in the user's
        code, `json.decoder.decode` in a library, and at the end a called C function such as `time.sleep()`, or
        `time.sleep [after OSError]()` while an exception was handled. `core_wait_s`: seconds that threads of tasks
        waited for a core. `calls`: results of `_SameCalls.told`, by prefix.
        """
        worker = self.worker
        stacks: dict[str, Counter[str]] = {}
        if profiles := "profile" in worker.periodic_callbacks:
            for ended, trees in [*worker.profile_keys_history, (float("inf"), worker.profile_keys)]:
                for prefix, tree in trees.items() if ended > since else ():
                    stacks.setdefault(prefix, Counter()).update(dict(_stacks(tree)))
        for prefix, found in self.on_loop.items():
            stacks.setdefault(prefix, Counter()).update(found)
        now = _waited_for_a_core(worker)
        core_wait_s = sum(max(seconds - self.waited.get(thread, 0.0), 0.0) for thread, seconds in now.items())
        calls = {prefix: found.told() for prefix, found in self.calls.items()}
        self.begin()
        kept = sorted(stacks.items(), key=lambda item: -sum(item[1].values()))[:PREFIXES]
        told = {prefix: shortened(found) for prefix, found in kept if found}
        return {"stacks": told, "absent": "" if profiles else OFF, "core_wait_s": core_wait_s, "calls": calls}


def shortened(stacks: Counter[str], most: int = STACKS) -> dict[str, int]:
    """Samples by stack: the most frequent stacks unchanged, others without their innermost frames.

    Samples of rare stacks are counted under an empty stack.
    """
    kept, rest = Counter(dict(stacks.most_common(most))), Counter[str]()
    for stack, samples in stacks.items():
        if stack not in kept:
            rest[_cut(stack)] += samples
    kept.update(dict(rest.most_common(most)))
    if left := sum(stacks.values()) - sum(kept.values()):
        kept[""] += left
    return dict(kept)


def _cut(stack: str) -> str:
    frames = stack.split(";")
    users = next((place for place, frame in enumerate(frames) if " " in frame), 0)
    return ";".join(frames[: max(CUT, users + 1)])


def _waited_for_a_core(worker: Any) -> dict[int, float]:
    """Seconds for which threads of tasks have waited for a core since their start, by thread; empty except on Linux."""
    found = {}
    for thread in tuple(getattr(worker.executors.get("default"), "_threads", ())):
        with suppress(OSError, ValueError, IndexError), open(f"/proc/self/task/{thread.native_id}/schedstat") as file:
            found[thread.native_id] = int(file.read().split()[1]) / 1e9
    return found


# ------------------------------------------------------------------ coroutine functions


class _EventLoops:
    """Samples event loops while tasks run there; one instance for all workers of a process."""

    def __init__(self) -> None:
        self.running: dict[int, int] = {}  # number of running tasks, by thread of the event loop
        self.watches = False
        self.functions = Instrumented()
        self.lock = threading.Lock()

    def install(self) -> None:
        for name in _RUNS_COROUTINES:
            self.functions.put(getattr(worker, name, None), Hook(self.begins, end=self.ends))

    def begins(self, *arguments: Any) -> int:
        thread = threading.get_ident()
        with self.lock:
            self.running[thread] = self.running.get(thread, 0) + 1
            if not self.watches:
                self.watches = True
                threading.Thread(target=self.watch, name="scalescope-coroutines", daemon=True).start()
        return thread

    def ends(self, thread: int) -> None:
        with self.lock:
            self.running[thread] -= 1

    def watch(self) -> None:
        last = before = time.monotonic()
        while True:
            time.sleep(COROUTINE_S)
            now = time.monotonic()
            with self.lock:
                threads = [thread for thread, tasks in self.running.items() if tasks > 0]
                if threads:
                    last = now
                elif now > last + LINGER_S:
                    self.watches = False
                    return
            for thread in threads:
                with suppress(Exception):  # a failed sample is lost; the next one may succeed
                    _look(thread, round((now - before) / COROUTINE_S))
            before = now


_RUNS_COROUTINES = ("_run_task_async", "apply_function_async")  # the second name is that before distributed 2024.9
_event_loops = _EventLoops()


def _look(thread: int, samples: int) -> None:
    with collection_deferred():
        frames: list[Any] = []
        frame: Any = sys._current_frames().get(thread)
        while frame is not None and frame.f_code.co_name not in _RUNS_COROUTINES and len(frames) < DEEPEST:
            frames.append(frame)
            frame = frame.f_back
        while frame is not None and frame.f_code.co_name != "execute":
            frame = frame.f_back
        if frame is None or not frames:
            return
        running, prefix = frame.f_locals.get("self"), key_split(frame.f_locals.get("key"))
        plugin = _plugins.get(running)
        if plugin is None:
            return
        texts = [frame_text(_info(each)) for each in reversed(frames)]
        texts = [each for place, each in enumerate(texts) if place or not each.startswith(_DISPATCH)]
        if call := called(frames[0].f_code, frames[0].f_lasti):
            texts.append(f"{call}()")
        if len(texts) > OUTER + INNER:
            texts[OUTER:-INNER] = ["…"]
        plugin.on_loop.setdefault(prefix, Counter())[";".join([COROUTINE, *texts])] += samples


# ------------------------------------------------------------------ calls that read something


class _SameCalls:
    """Calls with equal arguments in the tasks of one prefix."""

    def __init__(self) -> None:
        self.tasks: set[int] = set()  # hashes of the keys of seen tasks; `found` has these hashes, too
        # By function, arguments and line of a call: samples, samples in which the call read something, and tasks
        self.found: dict[tuple[str, str, str], tuple[list[int], set[int]]] = {}

    def note(self, task: int, calls: list[tuple[tuple[str, str, str], bool]]) -> None:
        if task not in self.tasks:
            if len(self.tasks) >= COUNTED:
                return
            self.tasks.add(task)
        for call, reads in calls:
            samples, tasks = self.found.setdefault(call, ([0, 0], set()))
            samples[0] += 1
            samples[1] += reads
            tasks.add(task)
        if len(self.found) > CALLS:
            self.found = {call: each for call, each in self.found.items() if len(each[1]) > 1 or task in each[1]}

    def told(self) -> tuple[int, list[tuple[str, str, str, int, int, int]]]:
        """Number of tasks seen, and calls with most samples: function, arguments, line, and the counts of `found`."""
        rows = [(*call, samples[0], samples[1], len(tasks)) for call, (samples, tasks) in self.found.items()]
        return len(self.tasks), sorted(rows, key=lambda row: -row[3])[:TOLD_CALLS]


def _note_calls(frames: list[Any], outside: Any) -> None:
    # `frames`: from the innermost outwards; `outside`: the caller of the last of them
    while outside is not None and outside.f_code.co_name not in _RUNS_TASKS:
        outside = outside.f_back
    if outside is None:
        return
    variables = outside.f_locals
    plugin = _plugins.get(variables["execution_state"]["worker"])
    if plugin is not None:
        found = plugin.calls.setdefault(key_split(variables["key"]), _SameCalls())
        found.note(hash(variables["key"]), list(_calls_of_users(frames)))


def _calls_of_users(frames: list[Any]) -> Iterator[tuple[tuple[str, str, str], bool]]:
    users = [not module_of(_file(frame)) for frame in frames]
    call = called(frames[0].f_code, frames[0].f_lasti)
    reads = call.rpartition(".")[2].startswith(_READING)
    if reads and users[0]:  # a C function: its arguments are unknown, but open files are known
        names = sorted({str(each.name) for each in _files(frames[0])})
        if names:
            yield (call, ", ".join(names), frame_text(_info(frames[0]))), True
    for frame, of_user, caller, by_user in zip(frames, users, frames[1:], users[1:], strict=False):
        name = frame.f_code.co_name
        reads = reads or name.lower().startswith(_SETTING_UP if of_user else _READING)
        reads = reads or (of_user and _reads_file(frame))
        if by_user and (arguments := _arguments(frame)) is not None:
            name = getattr(frame.f_code, "co_qualname", name).removesuffix(".__init__").rpartition("<locals>.")[2]
            yield (name, arguments, frame_text(_info(caller))), reads


def _reads_file(frame: Any) -> bool:
    """Whether a variable of the function holds a file that is open for reading."""
    return any(not each.closed and "r" in str(getattr(each, "mode", "")) for each in _files(frame))


def _files(frame: Any) -> list[Any]:
    # copy first: the variables of a module may change meanwhile
    return [each for each in list(frame.f_locals.values()) if type(each) in _FILES]


def _arguments(frame: Any) -> str | None:
    """The arguments of a call as text; None if an argument's text would not identify its value."""
    code, variables = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = names[1:] if code.co_name == "__init__" else names
    if any(part in name.lower() for name in names for part in _SECRETS):
        return None
    texts = [_argument_text(variables[name]) if name in variables else None for name in names]
    given = [text for text in texts if text is not None]
    return ", ".join(given) if len(given) == len(names) else None


def _argument_text(value: Any, depth: int = 0) -> str | None:
    kind = type(value)
    if kind in (str, bytes):
        return repr(value) if len(value) <= TEXT else f"{value[:TEXT]!r}, {len(value)}, {value[-TEXT:]!r}"
    if value is None or kind in (bool, int, float, complex) or isinstance(value, PurePath):
        return str(value)
    if isinstance(value, type | Enum):
        return value.__name__ if isinstance(value, type) else value.name
    if kind in _FILES:
        return str(value.name)
    if kind in (list, tuple, set, dict) and depth < 2 and len(value) <= 20:
        items = [*value, *value.values()] if kind is dict else value
        texts = [_argument_text(each, depth + 1) for each in items]
        return None if None in texts else f"{kind.__name__}{texts}"
    return None


# ------------------------------------------------------------------ stacks


def _stacks(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    children = tree["children"].values()
    own = tree["count"] - sum(child["count"] for child in children)
    if own > 0:
        called = tree["description"].get("called", "")
        frames = [*above, f"{called}()"] if called else list(above)
        if len(frames) > OUTER + INNER:
            frames[OUTER:-INNER] = ["…"]
        yield ";".join(frames), own
    for child in children:
        text = frame_text(child["description"])
        dispatch = not above and text.startswith(_DISPATCH)
        yield from _stacks(child, above if dispatch else (*above, text))


def frame_text(description: dict[str, Any]) -> str:
    file, name = description["filename"], description["name"]
    module = module_of(file)
    text = f"{module}.{name}" if module else f"{os.path.basename(file)}:{description['line_number']} {name}"
    return text.replace(";", ",")


@lru_cache(maxsize=10_000)
def module_of(file: str) -> str:
    """The module of a library's file; empty for the user's own files."""
    if file.startswith("<frozen "):
        return file[len("<frozen ") : -1]
    if file.startswith("<"):
        return "" if not file.startswith("<__") else file.strip("<>")
    for part in ("site-packages", "dist-packages"):
        _, found, path = file.replace("\\", "/").rpartition(f"/{part}/")
        if found:
            return _dotted(path)
    for folder in _FOLDERS:
        if file.startswith(folder):
            return _dotted(file[len(folder) :])
    return ""


def _dotted(path: str) -> str:
    name = os.path.splitext(path.replace("\\", "/"))[0].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


# ------------------------------------------------------------------ what the profiler of the worker counts


def _count(change: int) -> None:
    # all workers of a process share one installation
    global _installed
    _installed += change
    if _installed == 1 and change > 0:
        profile.process = _process
        _event_loops.install()
    elif _installed == 0:
        profile.process = _original
        _event_loops.functions.restore()


def _process(frame: Any, child: Any, state: Any, **options: Any) -> Any:
    # like the original, but also counts the innermost frame and lines; workers pass True for `child`
    if child is not True:
        return _original(frame, child, state, **options)
    stop, innermost = options.get("stop"), frame
    frames: list[Any] = []
    while frame is not None and len(frames) < DEEPEST:
        frames.append(frame)
        frame = frame.f_back
        if frame is not None and stop and frame.f_code.co_filename.endswith(stop):
            break
    for each in reversed(frames):
        state["count"] += 1
        identifier, users = _identity(each.f_code)
        if users:
            identifier = f"{identifier};{each.f_lineno}"
        found = state["children"].get(identifier)
        if found is None:
            found = {"count": 0, "description": _info(each), "children": {}, "identifier": identifier}
            state["children"][identifier] = found
        state = found
    state["count"] += 1
    _once_a_sample(frames, frame)
    if "called" not in state["description"]:
        call = called(innermost.f_code, innermost.f_lasti)
        handled = _handled(innermost) if call.endswith("sleep") else ""
        state["description"]["called"] = f"{call} [after {handled}]" if handled else call
    return state


_counted = 0  # id of the innermost frame of a sample that has been counted once so far


def _once_a_sample(frames: list[Any], outside: Any) -> None:
    # workers count each sample twice, in two profiles: of all tasks, and of the task's prefix
    global _counted
    if id(frames[0]) == _counted:
        _counted = 0
        with suppress(Exception):  # runs inside the user's program, which must not fail; the next sample may succeed
            _note_calls(frames, outside)
    else:
        _counted = id(frames[0])


def _info(frame: Any) -> Any:
    info = profile.info_frame(frame)
    info["filename"] = _file(frame)
    return info


def _file(frame: Any) -> str:
    file: str = frame.f_code.co_filename
    return frame.f_globals.get("__file__") or file if file.startswith(SENT) else file


def _handled(frame: Any) -> str:
    """The class of the exception that the thread of this frame handles; empty if it handles none."""
    if not hasattr(sys, "_current_exceptions"):  # before Python 3.11
        return ""
    with collection_deferred():
        threads = [thread for thread, innermost in sys._current_frames().items() if innermost is frame]
        found = sys._current_exceptions().get(threads[0]) if threads else None
    error = found[1] if isinstance(found, tuple) else found  # Python 3.12 and later return the exception alone
    return "" if error is None else type(error).__name__


@lru_cache(maxsize=10_000)
def _identity(code: Any) -> tuple[str, bool]:
    # like `profile.identifier`, and whether it is the user's own code: only there are lines counted separately
    name, file = getattr(code, "co_name", repr(code)), getattr(code, "co_filename", "<frozen ?>")
    return f"{name};{file};{getattr(code, 'co_firstlineno', 0)}", not module_of(file)


@lru_cache(maxsize=10_000)
def called(code: Any, instruction: int) -> str:
    """The function that an instruction calls, as `cursor.execute`; empty if it calls none, and before Python 3.11."""
    if sys.version_info < (3, 11) or not 0 <= instruction < len(code.co_code):
        return ""
    here = dis.opname[code.co_code[instruction]]
    if not here.startswith(("CALL", "PRECALL", "BEFORE_WITH")):
        return ""
    before = [each for each in dis.get_instructions(code) if each.offset < instruction]
    loads = [each for each in before if each.opname.startswith("LOAD_") and isinstance(each.argval, str)]
    loads = [each for each in loads if each.opname != "LOAD_CONST"]
    if here == "BEFORE_WITH":
        return f"{loads[-1].argval}.__enter__" if loads else "__enter__"
    line, end_line, column, end_column = list(code.co_positions())[instruction // 2]
    places = [(each.argval, each.positions) for each in loads if each.positions]
    names = {
        (at.end_lineno, at.end_col_offset): name for name, at in places if (at.lineno, at.col_offset) == (line, column)
    }
    return ".".join(names[until] for until in sorted(names) if until < (end_line, end_column))


_original = profile.process
