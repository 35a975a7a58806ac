"""Samples the stack of the thread that runs the workload, from the call to the return."""

from __future__ import annotations

import _thread
import ast
import linecache
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Self

from scalescope.capture.called_cluster import OwnScheduler
from scalescope.capture.deferred_collection import collection_deferred
from scalescope.capture.user_code import is_library
from scalescope.model.records import (
    FLOW,
    HASHED,
    IMPORT,
    JOBLIB,
    LOCAL,
    META,
    NOT_HASHED,
    OTHER_CLUSTER,
    TRAVERSED,
    Columns,
    from_rows,
)

_logger = logging.getLogger(__name__)

# Real seconds between two samples: they grow from INTERVAL_S / 16 to INTERVAL_S, then are the share PART of the call's
# time so far, at most LONGEST_S.
INTERVAL_S, LONGEST_S, PART = 0.025, 0.1, 0.005

_FLOW_ENGINE, _DELAYED = "/prefect/flow_engine.py", "/dask/delayed.py"
_HASHES = ("/dask/tokenize.py", "/dask/base.py")  # files of `tokenize`: the first since dask 2024.9, the second before
_LOOP = "IO loop"  # name of the thread in which a synchronous client talks to its scheduler
_META = ("compute_meta", "apply_infer_dtype", "emulate", "_emulate")  # they call functions on made-up data
_VIRTUAL = "scalescope.clusters.simulated."


class CodePlace(NamedTuple):
    """The innermost frame of the user's code, and what its call is for."""

    code: CodeType | None = None
    instruction: int = 0
    line: int = 0
    waits: bool = False  # True if the call waits for a cluster
    purpose: str = ""  # column `what` of the table `client`; if empty, the column names the called function
    elsewhere: bool = False  # True if the call goes to another cluster


class ClientWatch:
    """Attributes the calling thread's time, on the cluster's clock, to the lines of user code that it is at.

    In real time, another thread samples the calling thread. In virtual time, which passes only while the calling thread
    waits or is charged CPU seconds, the thread itself reports each wait, and samples only divide it. `function` is
    the workload; its file always counts as user code. `waits` registers a function that is called before and after
    each wait. With the scheduler's `address`, calls to other clusters are recognised.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        clock: Callable[[], float] = time.time,
        waits: Callable[[Callable[[], object]], AbstractContextManager[bool]] = lambda passed: nullcontext(False),
        address: str = "",
    ) -> None:
        self._own_file = getattr(getattr(unwrap(function), "__code__", None), "co_filename", "")
        self._clock, self._waits, self._address = clock, waits, address
        self._scheduler: OwnScheduler | None = None
        self._open = ExitStack()
        self._lock, self._over = threading.Lock(), False
        self._seen: list[CodePlace] = []
        self._rows: list[tuple[CodePlace, float, float]] = []  # place, begin, end
        self.began = self.ended = 0.0

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        self._scheduler = OwnScheduler(self._address) if self._address else None
        self._virtual = self._open.enter_context(self._waits(self._passed))
        self.began = self.ended = self._clock()
        _thread.start_new_thread(self._sample_quietly, ())  # a thread of `threading` would take part in a simulation
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
        with self._lock:
            self._over = True
            self._charge(self._rows[-1][0] if self._rows else CodePlace())

    def columns(self, ahead_s: float) -> Columns:
        """The table `client`; the scheduler's clock is `ahead_s` ahead of this watch's clock."""
        return self._columns(self._rows, ahead_s)

    def taken(self, ahead_s: float) -> Columns:
        """Like `columns`, but only rows that have ended; each row is returned once."""
        with self._lock:
            going_on = [] if self._over else self._rows[-1:]
            rows, self._rows = self._rows[: len(self._rows) - len(going_on)], going_on
        return self._columns(rows, ahead_s)

    def awaits(self) -> tuple[str, str, float] | None:
        """Line, call and seconds so far of the thread's present wait for this cluster; None if it does not wait."""
        with self._lock:
            if not self._rows:
                return None
            place, begin, end = self._rows[-1]
        return (*_described(place), end - begin) if place.waits and not place.elsewhere else None

    @staticmethod
    def _columns(charged: Sequence[tuple[CodePlace, float, float]], ahead_s: float) -> Columns:
        rows = []
        for place, begin, end in charged:
            where, what = _described(place)
            row = {"time": begin + ahead_s, "seconds": end - begin, "where": where, "what": what, "waits": place.waits}
            rows.append(row)
        return from_rows("client", rows)

    def _sample_quietly(self) -> None:
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001 - Python would print it to the user's program
            _logger.info("the client's thread is no longer sampled: %r", error)

    def _sample(self) -> None:
        interval, began = INTERVAL_S / 16, time.monotonic()
        while not self._over:
            time.sleep(interval)
            interval = min(2 * interval, max(INTERVAL_S, PART * (time.monotonic() - began)), LONGEST_S)
            with collection_deferred():
                frames = sys._current_frames()
                place = self._place(frames.get(self._watched))
                self._seen.append(place._replace(purpose=HASHED) if place.waits and _loop_hashes(frames) else place)
                del frames  # frames keep the workload's objects alive
            if not self._virtual:
                with self._lock:
                    if not self._over:
                        self._charge()

    def _passed(self) -> None:
        self._charge(self._place(sys._getframe(1)))

    def _charge(self, otherwise: CodePlace | None = None) -> None:
        # divide the time since the last call equally among the places sampled meanwhile
        seen, self._seen = self._seen, []
        if otherwise is not None and not seen:
            seen = [otherwise]
        begin, self.ended = self.ended, max(self._clock(), self.ended)
        for i, place in enumerate(seen):
            until = begin + (self.ended - begin) * (i + 1) / len(seen)
            since = begin + (self.ended - begin) * i / len(seen)
            if self._rows and self._rows[-1][0] == place:
                place, since, _ = self._rows.pop()
            if until > since:
                self._rows.append((place, since, until))

    def _place(self, frame: FrameType | None) -> CodePlace:
        waits, elsewhere = _waits(frame), False
        frame, purpose = _past_the_cluster(frame)
        while frame is not None:
            file = frame.f_code.co_filename
            if file == self._own_file or not is_library(file):
                at = frame.f_code, frame.f_lasti, frame.f_lineno or 0
                return CodePlace(*at, waits or elsewhere, purpose or (META if _meta(frame) else ""), elsewhere)
            purpose = purpose or _purpose(file, frame.f_code.co_name)
            # an outer call (nearer to the user's code) overrides inner ones
            another = self._scheduler.is_another(frame) if self._scheduler else None
            elsewhere = elsewhere if another is None else another
            frame = frame.f_back
        return CodePlace(waits=waits or elsewhere, elsewhere=elsewhere)


def _waits(frame: FrameType | None) -> bool:
    # whether the innermost frames are a wait of Dask's client
    depth, name = 0, ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in ("threading", __name__) and not name.startswith(_VIRTUAL):
            break
        depth, frame = depth + 1, frame.f_back
    return depth > 0 and name.partition(".")[0] == "distributed"


def _purpose(file: str, function: str) -> str:
    if file.startswith("<frozen importlib"):
        return IMPORT
    if file.endswith(_FLOW_ENGINE):
        return FLOW
    if file.endswith(_HASHES) and function == "tokenize":
        return HASHED
    return TRAVERSED if file.endswith(_DELAYED) and function == "unpack_collections" else ""


def _loop_hashes(frames: Mapping[int, FrameType]) -> bool:
    """Whether a client's event-loop thread is hashing data that was passed to `scatter`."""
    return any(_hashes(frames.get(each.ident or 0)) for each in threading.enumerate() if each.name == _LOOP)


def _hashes(frame: FrameType | None) -> bool:
    return _innermost(frame, lambda code: _purpose(code.co_filename, code.co_name) == HASHED) is not None


def _innermost(frame: FrameType | None, wanted: Callable[[CodeType], bool]) -> FrameType | None:
    """The innermost frame whose code is `wanted`, from `frame` outwards; None if there is none."""
    while frame is not None and not wanted(frame.f_code):
        frame = frame.f_back
    return frame


def _meta(frame: FrameType | None) -> bool:
    frame = _innermost(frame, lambda code: code.co_name in _META)
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "dask"


def _past_the_cluster(frame: FrameType | None) -> tuple[FrameType | None, str]:
    """The frame that runs tasks without the cluster, if any, and what runs them; else `frame` and empty text."""
    at = frame
    while at is not None:
        name, module = at.f_code.co_name, at.f_globals.get("__name__")
        if name == "get_async" and module == "dask.local":
            return at, LOCAL
        if (
            name == "__call__"
            and module == "joblib.parallel"
            and at.f_back
            and not is_library(at.f_back.f_code.co_filename)
        ):
            backend = type(getattr(at.f_locals.get("self"), "_backend", None)).__name__
            return (frame, "") if backend == "DaskDistributedBackend" else (at, JOBLIB)
        at = at.f_back
    return frame, ""


def _described(place: CodePlace) -> tuple[str, str]:
    code = place.code
    if code is None:
        return "", OTHER_CLUSTER if place.elsewhere else ""
    names = [name for name in code.co_qualname.split(".") if not name.startswith("<")] or [code.co_name]
    where = f"{Path(code.co_filename).name}:{place.line} {names[-1]}"
    if place.elsewhere:
        return where, OTHER_CLUSTER
    if place.purpose not in ("", HASHED):
        return where, place.purpose
    line, end_line, column, end_column = (each or 0 for each in list(code.co_positions())[place.instruction // 2])
    lines = linecache.getlines(code.co_filename)
    if not 0 < line <= end_line <= len(lines):
        return where, ""
    text = [each.encode() for each in lines[line - 1 : end_line]]
    text[-1] = text[-1][:end_column]
    text[0] = text[0][column:]
    try:
        statements = ast.parse(b"".join(text)).body
    except (SyntaxError, ValueError):  # part of a statement, or a file that has changed since its import
        return where, ""
    match statements:
        case [ast.Expr(value=ast.Call(func=called))]:
            name = _name(called)
            return where, place.purpose + name if name.rpartition(".")[2] in NOT_HASHED else name
    return where, ""


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_name(node.value)}.{node.attr}"
        case ast.Call():
            return f"{_name(node.func)}()"
    return "…"
