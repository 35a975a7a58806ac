"""Notes the calls of a workload that decide its partitions, with the line of the user's code, and its large graphs.

Results are unchanged unless the configuration sets `NPARTITIONS`.
"""

from __future__ import annotations

import glob
import inspect
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

from scalescope.capture.instrument import Hook, Instrumented
from scalescope.capture.user_code import line_of_user
from scalescope.errors import InvalidField
from scalescope.model.large_part import LargePart
from scalescope.model.partition_calls import (
    BAG,
    CREATE,
    DIVIDED,
    FROM_PANDAS,
    NPARTITIONS,
    READ_CSV,
    READ_TEXT,
    PartitionCall,
)

# Functions that return a collection, by the module from which users call them.
CALLS: dict[str, tuple[str, ...]] = {
    "dask.bag": ("from_sequence", "read_text"),
    "dask.dataframe": ("from_pandas", "from_map", "read_csv", "read_parquet"),
    "dask.array": (
        *("from_array", "from_zarr", "ones", "zeros", "full", "empty", "arange", "linspace"),
        "random._wrap_func",  # all distributions call it
    ),
}
# functions that divide the items of their first argument into partitions
COUNTED = (BAG, FROM_PANDAS, "dask.dataframe.from_map", "dask.array.from_array")
BEAM = "apache_beam"
MOST = 50  # largest number of calls kept per trial
COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".lz4", ".snappy")  # suffixes of files that are not read in blocks


class Notes(list[PartitionCall]):
    """Noted calls in order, without repetitions."""

    def __init__(self) -> None:
        super().__init__()
        self.created: dict[int, set[str]] = {}  # lines that called Beam's `Create`, by number of elements
        self.large: list[LargePart] = []  # largest part of each of the largest graphs, largest first

    def facts(self) -> dict[str, Any]:
        return {"asked": [each.to_mapping() for each in self], "large": [each.to_mapping() for each in self.large]}

    def add(self, call: str, given: Any, made: Any) -> None:
        partitions = getattr(made, "npartitions", None)
        if not isinstance(partitions, int) or len(self) >= MOST:
            return
        caller = sys._getframe(4)  # skips `add`, `_made`, `left` and the noted function
        items = _length(given) if call in COUNTED else None
        where = line_of_user(caller)
        if str(caller.f_globals.get("__name__")).startswith(BEAM):  # built by Beam after the user's code has run
            call = CREATE
            lines = self.created.get(items or 0, set())
            where = next(iter(lines)) if len(lines) == 1 else where
        nbytes = _bytes_to_cut(given) if call in (READ_TEXT, READ_CSV) else None
        asked = PartitionCall(call, where, items, partitions, *_chunks(made), nbytes)
        # drop inner calls, which are noted earlier: `read_csv` calls `from_map`
        self[:] = [each for each in self if not self._within(each, asked)]
        if asked not in self:
            self.append(asked)

    @staticmethod
    def _within(inner: PartitionCall, outer: PartitionCall) -> bool:
        same = (inner.where, inner.partitions) == (outer.where, outer.partitions)
        return same and inner.call != outer.call and inner.call != CREATE and outer.call not in DIVIDED


class Noting:
    """Notes calls of the modules that are added, and the client's large graphs, until it is closed.

    `failed` is called with errors of the noting itself; without `failed`, these are raised.
    """

    def __init__(self, failed: Callable[[Exception], None] | None = None) -> None:
        self.notes = Notes()
        self._failed = failed
        self._functions = Instrumented()

    def add(self, module: ModuleType) -> None:
        """Note the calls of a module: one of `CALLS`, Beam, or `distributed`."""
        if module.__name__ == "distributed":
            from scalescope.capture.large_parts import large_part_hooks  # imports `distributed`

            for function, hook in large_part_hooks(self.notes.large, line_of_user, self._failed):
                self._functions.put(function, hook)
            return
        if module.__name__ == BEAM:
            if create := getattr(module, "Create", None):
                self._functions.put(create.__init__, Hook(leave=self._created, failed=self._failed))
            return
        for name in CALLS[module.__name__]:
            inner, _, function = name.rpartition(".")
            made: Any = getattr(getattr(module, inner, None) if inner else module, function, None)
            call = f"{module.__name__}.{name}".removesuffix("._wrap_func")
            leave = partial(self._made, call, made)
            self._functions.put(made, Hook(leave=leave, failed=self._failed))

    def close(self) -> None:
        self._functions.restore()
        self.notes.created.clear()

    def _made(self, call: str, function: FunctionType, arguments: tuple[Any, ...], made: Any) -> Any:
        if call in DIVIDED:
            made = _divided(function, made, arguments)
        if not function.__code__.co_argcount:  # decorated: `*args, **kwargs`
            arguments = arguments[0]
        self.notes.add(call, arguments[0] if arguments else None, made)
        return made

    def _created(self, arguments: tuple[Any, ...], nothing: None) -> None:
        elements = getattr(arguments[0], "values", None)
        where = line_of_user(sys._getframe(3))
        if isinstance(elements, Sized) and where:
            self.notes.created.setdefault(len(elements), set()).add(where)


@contextmanager
def noted(modules: Collection[str]) -> Iterator[Notes]:
    """Note calls while the body runs. `modules`: all that the workload imports; those with noted calls are loaded."""
    noting, uses_beam = Noting(), _used(BEAM, modules)
    try:
        for name in CALLS:
            if _used(name, modules) or (uses_beam and name == "dask.bag"):
                noting.add(import_module(name))
        if uses_beam:
            noting.add(import_module(BEAM))
        noting.add(import_module("distributed"))
        yield noting.notes
    finally:
        noting.close()


def _length(given: Any) -> int | None:
    try:
        return len(given) if isinstance(given, Sized) else None
    except TypeError:  # a NumPy array without dimensions has no length
        return None


def _bytes_to_cut(paths: Any) -> int | None:
    """Bytes that can be read in blocks: size of these files on this host, 0 if compressed; None if unknown."""
    names = [paths] if isinstance(paths, str | PurePath) else paths
    if not isinstance(names, list | tuple):  # an iterator would be used up before the call reads it
        return None
    found = [each for name in names for each in glob.glob(str(name))]
    if not found or len(found) > MOST:
        return None
    if any(each.endswith(COMPRESSED) for each in found):
        return 0
    try:
        return sum(map(os.path.getsize, found))
    except OSError:
        return None


def _chunks(made: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    # shape and largest chunk of an array; both empty if a length is unknown (nan)
    chunk = getattr(made, "chunksize", None)
    if not isinstance(chunk, tuple) or not all(isinstance(each, int) for each in (*made.shape, *chunk)):
        return (), ()
    return made.shape, chunk


def _used(name: str, modules: Collection[str]) -> bool:
    if name in sys.modules:
        return True
    if not any(each == name or each.startswith(f"{name}.") for each in modules):
        return False
    try:
        import_module(name)
    except ImportError:  # the workload's own import reports it
        return False
    return True


_dividing = threading.local()  # attribute `now`: whether this thread is repeating a call


def _divided(function: Any, made: Any, arguments: tuple[Any, ...]) -> Any:
    # repeat the call with as many partitions as the configuration asks for, if that is more
    import dask  # the observed program may not have imported it

    asked = dask.config.get(NPARTITIONS, 0)
    if not isinstance(asked, int) or asked < 0:
        raise InvalidField(NPARTITIONS, asked, "a number of partitions")
    if asked == 0 or getattr(_dividing, "now", False):
        return made
    given = dict(zip(inspect.signature(function).parameters, arguments, strict=True))
    enough = min(asked, _length(arguments[0]) or 0)
    if getattr(made, "npartitions", enough) >= enough:
        return made
    others = {name: value for name, value in given.items() if name not in ("partition_size", "chunksize")}
    _dividing.now = True
    try:
        return function(**{**others, "npartitions": enough})
    finally:
        _dividing.now = False
