"""Waits inside tasks and time spent around their work, as the workers' profiles show it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scalescope.analysis.inside_tasks import COROUTINE, InsidePrefix, Stack, called_by_user, inside_tasks, is_users
from scalescope.diagnosis.evidence.task_table import of_prefix
from scalescope.diagnosis.observation import Observation, once
from scalescope.model.records import SAME_CALL

# what a sample waits for: a lock, another machine or thread, a program, Dask itself, the retry of a failed call
LOCK, OUTSIDE, PROGRAM, CLUSTER, RETRY = "lock", "outside", "program", "cluster", "retry"
ON_LOOP = "loop"  # what a stack shows if a coroutine function keeps the worker's event loop busy
WAITS = (LOCK, OUTSIDE, PROGRAM, RETRY)
# Kinds of overhead around the work of a task, besides names of libraries; `ROWS`: pandas makes an object of each row;
# `DATES`: it guesses the format of each date
IMPORT, PICKLE, ROWS, DATES = "import", "pickle", "rows", "dates"

LIKE = 0.5  # least share of a prefix's sampled tasks with a call, for all its tasks to count as making the call
READING = 0.25  # least share of a call's samples that show it reading, for the call to count as loading data
INNERMOST = 8  # innermost frames of a stack, in which a lock is looked for
FEWEST, OVERLAP = 6, 1.5  # least tasks, and least mean number at a time, for the order of their ends to be evidence
MANY = 10  # least tasks for the same evidence, unless the call is of a database or a pool (then `FEWEST`)
ALONE = 0.6  # largest ratio of the shortest task to the median, if the shortest one waited for no other
SERIAL = 0.4  # least ratio of a short gap between two ends (10 % quantile) to the mean gap, if tasks take turns
MOSTLY = 0.7  # least share of samples with a frame, for the frame to belong to the common path

_LOCKS = {"acquire", "__enter__", "flock", "lockf", "locking"}
# Calls of databases: they wait for a lock, or just for a slow answer.
_MAYBE_LOCKS = {"execute", "executemany", "executescript", "commit"}
_OUTSIDE_CALLS = {
    *("sleep", "recv", "recv_into", "recvfrom", "read", "readinto", "readline", "send", "sendall", "connect"),
    *("getaddrinfo", "do_handshake", "poll", "select", "write", "fsync", "open", "stat", "scandir"),
}
_OUTSIDE_MODULES = {"socket", "ssl", "select", "selectors", "http", "urllib", "asyncio", "concurrent"}
_RETRY_LIBRARIES = {"tenacity", "backoff", "retrying", "retry"}
_TAKEN = {"BlockingIOError", "FileExistsError"}  # errors of a lock that another task holds
# Functions of pandas that go through rows (the first one also through columns), and those that make the object of a row
BY_ROWS = ("pandas.core.apply.apply_series_generator", "pandas.core.frame.iterrows")
_MAKES_ROWS = ("pandas.core.apply.series_generator", "pandas.core.frame.iterrows")
BY_DATES = "pandas.core.arrays.datetimes.objects_to_datetime64"
_GUESSES = ("dateutil", "_strptime")  # modules that parse a single date
SHORT_ROWS = 0.05  # least share of samples of row-by-row calls that make a row; below it, the function is the work
_IMPORTS = ("importlib._bootstrap", "importlib.import_module", "importlib.__import__")
AFTER = re.compile(r" \[after (\w+)\]$")  # end of a call that was made while an exception was handled
_PICKLE_CALL = re.compile(r"(?:c?loudpickle|_?pickle|dill|joblib(?:\.numpy_pickle)?)\.(?:load|dump)s?")
_PICKLERS = {"pickle", "cloudpickle", "dill"}

# Functions that prepare a library, run around the user's own or compress a file, by library; () means all of them.
AROUND: Mapping[str, tuple[str, ...]] = {
    "prefect": (),
    "prefect_dask": (),
    "boto3": ("client", "resource", "Session", "__init__"),
    "botocore": ("create_client", "get_session", "load_service_model"),
    "numba": ("compile", "_compile_for_args", "_compile_cached"),
    **dict.fromkeys(("gzip", "bz2", "lzma"), ("write",)),
}


@once
def inside(observation: Observation) -> Mapping[str, InsidePrefix]:
    """Profiles by prefix; empty if the workers reported nothing."""
    return inside_tasks(observation.tables, observation.measured, observation.seconds("busy")) or {}


@dataclass(frozen=True)
class Spent:
    """Busy thread-seconds that tasks spent on one thing, and where most of it was in the worst prefix."""

    seconds: float
    prefix: str
    share: float  # share of the time of that prefix, from 0 to 1
    path: tuple[str, ...]  # frames common to nearly all samples of this time; if none, those of the commonest sample

    @property
    def line(self) -> str:
        """The innermost line of the user's code on that path; empty where there is none."""
        return Stack(self.path, 0).user

    @property
    def at(self) -> str:
        """The line as it ends a clause, ` at my_job.py:7 load`; may be empty."""
        return f" at {self.line}" if self.line else ""

    @property
    def function(self) -> str:
        """Function that this line calls, as `fcntl.flock`; without such a line, the innermost function of the path."""
        called = called_by_user(Stack(self.path, 0)) if self.line else ""
        return called or self.path[-1].removesuffix("()").split()[-1]

    @property
    def in_database(self) -> bool:
        """Whether the innermost call on that path is one of a database, by its name."""
        return _name(self.path[-1].removesuffix("()")) in _MAYBE_LOCKS

    @property
    def takes_a_lock(self) -> bool:
        """Whether a call on that path takes a lock, by its name."""
        return any(_name(frame.removesuffix("()")) in _LOCKS for frame in self.path)


@once
def waits(observation: Observation) -> Mapping[str, Spent]:
    """Waiting inside tasks by kind; at most the time for which the threads of the tasks used no core."""
    found = {each: _spent(observation, each, most="waiting") for each in WAITS}
    return {each: spent for each, spent in found.items() if spent}


@once
def overheads(observation: Observation) -> Mapping[str, Spent]:
    """Time around the work of tasks, computing or waiting, by `IMPORT`, `PICKLE`, `ROWS`, `DATES` or library."""
    kinds = {kind for told in _kinds(observation).values() for kind in told} - {"", CLUSTER, ON_LOOP, *WAITS}
    found = {each: _spent(observation, each) for each in sorted(kinds)}
    return {each: spent for each, spent in found.items() if spent}


@dataclass(frozen=True)
class SameCall:
    """A call that every task of a prefix makes with equal arguments, and that reads something."""

    function: str  # name of the function, such as `load_model`
    arguments: str  # arguments as text, separated by commas
    where: str  # the line that calls it, `my_job.py:9 predict`
    tasks: int  # tasks in which it was seen
    prefix: str
    share: float  # share of the time of that prefix, from 0 to 1
    seconds: float  # thread-seconds of all calls but the first of each worker


@once
def same_call(observation: Observation) -> SameCall | None:
    """The costliest of the calls that could be made once in each worker process; None without any."""
    found = []
    for _, told in observation.events(SAME_CALL):
        prefix, tasks, samples = str(told["prefix"]), int(told["tasks"]), int(told["samples"])
        profile = inside(observation).get(prefix)
        # only the first tasks of each thread made the call, and later ones did not
        cached = tasks <= observation.threads * (2 if tasks < told["seen"] else 1)
        if profile is None or cached or tasks < LIKE * told["seen"] or told["reading"] < READING * samples:
            continue
        share = min(samples / max(profile.samples, 1), 1.0)
        saved_s = share * profile.busy_s * (1 - len(observation.measured.addresses) / tasks)
        given = str(told["arguments"])
        found.append(SameCall(str(told["call"]), given, str(told["where"]), tasks, prefix, share, saved_s))
    return max(found, key=lambda each: each.seconds, default=None)


@once
def on_event_loops(observation: Observation) -> Spent | None:
    """Time in which coroutine functions of tasks kept the event loop of their worker busy; None without any."""
    return _spent(observation, ON_LOOP)


def computes(observation: Observation, prefix: str) -> bool:
    """Whether most samples of a prefix show it computing, without a wait that `_waits_for` knows."""
    stacks = inside(observation)[prefix].stacks
    idle = sum(stack.samples for stack in stacks if _waits_for(observation, prefix, stack))
    return 2 * idle < sum(stack.samples for stack in stacks)


@once
def _kinds(observation: Observation) -> Mapping[str, list[str]]:
    # what each stack of a prefix shows; empty if the stack shows the work itself
    return {
        prefix: [
            ON_LOOP
            if stack.frames[:1] == (COROUTINE,)
            else _overhead(observation, prefix, stack) or _waits_for(observation, prefix, stack)
            for stack in each.stacks
        ]
        for prefix, each in inside(observation).items()
    }


def _spent(observation: Observation, wanted: str, most: str = "") -> Spent | None:
    chosen: dict[str, tuple[float, list[Stack]]] = {}
    for prefix, each in inside(observation).items():
        kinds = _kinds(observation)[prefix]
        stacks = [stack for stack, kind in zip(each.stacks, kinds, strict=True) if kind == wanted]
        if stacks:
            seconds = each.busy_s * each.share(stacks)
            chosen[prefix] = min(seconds, each.seconds[most]) if most else seconds, stacks
    if not chosen:
        return None
    worst = max(chosen, key=lambda prefix: chosen[prefix][0])
    seconds, stacks = chosen[worst]
    busy_s = inside(observation)[worst].busy_s
    total = sum(each for each, _ in chosen.values())
    return Spent(total, worst, seconds / busy_s if busy_s > 0 else 0.0, tuple(_path(stacks)) or stacks[0].frames)


def _path(stacks: Sequence[Stack]) -> Iterator[str]:
    # down from the outermost frame, as long as nearly all samples take the same way
    whole, depth = sum(stack.samples for stack in stacks), 0
    while stacks:
        following = Counter[str]()
        for stack in stacks:
            if len(stack.frames) > depth:
                following[stack.frames[depth]] += stack.samples
        if not following or following.most_common(1)[0][1] < MOSTLY * whole:
            return
        frame = following.most_common(1)[0][0]
        yield frame
        stacks = [stack for stack in stacks if stack.frames[depth : depth + 1] == (frame,)]
        depth += 1


# ------------------------------------------------------------------ what a sample shows


def _waits_for(observation: Observation, prefix: str, stack: Stack) -> str:
    frames, call = [frame for frame in stack.frames if not frame.endswith("()")], stack.call.rpartition(".")[2]
    if any(_library(frame) == "distributed" for frame in frames):
        return CLUSTER
    if (after := AFTER.search(call)) and after[1] in _TAKEN:  # a lock file of the user, which fails if it exists
        return LOCK
    if after or (call == "sleep" and any(map(_tries_again, frames))):
        return RETRY
    innermost = _library(frames[-1]) if frames else ""
    names = {_name(frame) for frame in frames[-INNERMOST:]}
    if "acquire" in names or (call in _LOCKS and innermost != "threading"):
        return LOCK
    if (call in _MAYBE_LOCKS or "queue.get" in frames) and _serial(observation, prefix):
        return LOCK
    if any(_library(frame) == "subprocess" for frame in frames) or call in ("waitpid", "wait4", "system"):
        return PROGRAM
    if call not in _OUTSIDE_CALLS | _MAYBE_LOCKS and innermost not in {"threading", *_OUTSIDE_MODULES}:
        return ""
    return LOCK if takes_turns(observation, prefix) else OUTSIDE


def _tries_again(frame: str) -> bool:
    return _library(frame) in _RETRY_LIBRARIES or frame.startswith("urllib3.util.retry.")


@once
def takes_turns(observation: Observation, prefix: str) -> bool:
    """Whether tasks of a prefix take turns: they never end together, and the shortest is far below the median."""
    attempts, own = observation.measured, of_prefix(observation, prefix)
    if own.sum() < MANY or not _serial(observation, prefix):
        return False
    durations = (attempts.stop - attempts.start)[own]
    return bool(durations.min() <= ALONE * np.median(durations))


@once
def _serial(observation: Observation, prefix: str) -> bool:
    """Whether tasks of a prefix overlap, but never end together."""
    attempts, own = observation.measured, np.flatnonzero(of_prefix(observation, prefix))
    if len(own) < FEWEST:
        return False
    start, stop = np.sort(attempts.start[own]), np.sort(attempts.stop[own])
    gaps, overlap = np.diff(stop), (stop - start).sum() >= OVERLAP * (stop[-1] - start[0])
    return bool(overlap and np.quantile(gaps, 0.1) >= SERIAL * gaps.mean())


def _overhead(observation: Observation, prefix: str, stack: Stack) -> str:
    # kind of overhead that a stack shows; empty if the stack shows the work itself
    frames = stack.frames
    if _by_rows(observation, prefix) and not {*BY_ROWS}.isdisjoint(frames) and _in_pandas(frames):
        return ROWS
    if BY_DATES in frames and any(_library(frame) in _GUESSES for frame in frames):
        return DATES
    for place, frame in enumerate(frames):
        if _library(frame) == "distributed":  # distributed pickles what tasks send
            return ""
        kind = _surrounds(frame)
        if kind in (IMPORT, PICKLE) or (kind and not any(map(is_users, frames[place:]))):
            return kind
    outermost = _library(frames[0]) if frames and not is_users(frames[0]) else ""
    if outermost in _calls_users(observation).get(prefix, ()):
        others = {_library(frame) for frame in frames if not frame.endswith("()")} - {outermost}
        if not any(map(is_users, frames)) and others <= sys.stdlib_module_names:
            return outermost
    return ""


@once
def _by_rows(observation: Observation, prefix: str) -> bool:
    """Whether making an object of each row takes a good part of the time that tasks of a prefix go through rows."""
    stacks = inside(observation)[prefix].stacks
    rows, made = (
        sum(stack.samples for stack in stacks if not {*names}.isdisjoint(stack.frames))
        for names in (BY_ROWS, _MAKES_ROWS)
    )
    return made > SHORT_ROWS * rows


def _in_pandas(frames: Sequence[str]) -> bool:
    return next((_library(frame) for frame in reversed(frames) if not frame.endswith("()")), "") == "pandas"


@once
def _calls_users(observation: Observation) -> Mapping[str, frozenset[str]]:
    # libraries whose functions call the user's own, by prefix, without those that compute
    computing = {"dask", "numpy", "pandas", "xarray", "toolz", "tlz", *sys.stdlib_module_names}
    return {
        prefix: frozenset(
            _library(stack.frames[0])
            for stack in each.stacks
            if not is_users(stack.frames[0]) and any(map(is_users, stack.frames))
        )
        - computing
        for prefix, each in inside(observation).items()
    }


@lru_cache(maxsize=10_000)
def _surrounds(frame: str) -> str:
    # kind of overhead that begins at a frame: `IMPORT`, `PICKLE`, or a library of `AROUND`; else empty
    library = _library(frame)
    if frame.startswith(_IMPORTS):
        return IMPORT
    if library in _PICKLERS or _PICKLE_CALL.fullmatch(frame.removesuffix("()")):
        return PICKLE
    around = library in AROUND and (not AROUND[library] or _name(frame) in AROUND[library])
    return library.partition("_")[0] if around else ""


@lru_cache(maxsize=10_000)
def _library(frame: str) -> str:
    return "" if is_users(frame) else frame.partition(".")[0]


def _name(frame: str) -> str:
    return frame.split()[-1] if is_users(frame) else frame.rpartition(".")[2]
