"""Notes the calls of a workload that decide its partitions, with the line of the user's code, and its large graphs.

Results are unchanged unless the configuration sets `NPARTITIONS`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import dask

from scalescope.capture.client_thread import is_library
from scalescope.capture.large_parts import large_parts_noted
from scalescope.errors import InvalidField
from scalescope.model.large_part import LargePart
from scalescope.model.partition_calls import BAG, CREATE, DIVIDED, FROM_PANDAS, NPARTITIONS, PartitionCall

# Functions that return a collection, by the module from which users call them.
CALLS: dict[str, tuple[str, ...]] = {
    "dask.bag": ("from_sequence", "read_text"),
    "dask.dataframe": ("from_pandas", "from_map", "read_csv", "read_parquet"),
    "dask.array": ("from_array", "from_zarr", "ones", "zeros", "full", "empty", "arange", "linspace"),
}
# functions whose argument tells how much there is to divide
COUNTED = (BAG, FROM_PANDAS, "dask.dataframe.from_map", "dask.array.from_array")
BEAM = "apache_beam"
MOST = 50  # most calls kept of a trial


class Notes(list[PartitionCall]):
    """Distinct calls in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.created: dict[int, set[str]] = {}  # where Beam's Create was called, by the number of its elements
        self.large: list[LargePart] = []  # of the largest graphs, the largest first

    def facts(self) -> dict[str, Any]:
        return {"asked": [each.to_mapping() for each in self], "large": [each.to_mapping() for each in self.large]}

    def add(self, call: str, given: Any, made: Any) -> None:
        partitions = getattr(made, "npartitions", None)
        if not isinstance(partitions, int) or len(self) >= MOST:
            return
        caller = sys._getframe(2)
        items = _length(given) if call in COUNTED else None
        where = line_of_user(caller)
        if str(caller.f_globals.get("__name__")).startswith(BEAM):  # a pipeline is built from what it was written as
            call = CREATE
            lines = self.created.get(items or 0, set())
            where = next(iter(lines)) if len(lines) == 1 else where
        asked = PartitionCall(call, where, items, partitions)
        # what a library calls within, such as `from_map` within `read_csv`, was noted first
        self[:] = [each for each in self if not self._within(each, asked)]
        if asked not in self:
            self.append(asked)

    @staticmethod
    def _within(inner: PartitionCall, outer: PartitionCall) -> bool:
        same = (inner.where, inner.partitions) == (outer.where, outer.partitions)
        return same and inner.call != outer.call and inner.call != CREATE and outer.call not in DIVIDED


@contextmanager
def noted(modules: Collection[str]) -> Iterator[Notes]:
    """Note the calls of the body. `modules`: what the workload imports; these are loaded now."""
    notes, replaced = Notes(), []
    uses_beam = _used(BEAM, modules)
    for name, functions in CALLS.items():
        if _used(name, modules) or (uses_beam and name == "dask.bag"):
            module = import_module(name)
            for function in functions:
                original = getattr(module, function, None)
                if callable(original):
                    replaced.append((original, _noting(notes, f"{name}.{function}", original)))
    create: Any = getattr(import_module(BEAM), "Create", None) if uses_beam else None
    constructor = None if create is None else create.__init__
    try:
        for original, replacement in replaced:
            _rebind(original, replacement)
        if constructor is not None:
            create.__init__ = _creating(notes, constructor)
        with large_parts_noted(notes.large, line_of_user):
            yield notes
    finally:
        if constructor is not None:
            create.__init__ = constructor
        for original, replacement in replaced:
            _rebind(replacement, original)
        notes.created.clear()


def line_of_user(frame: FrameType | None) -> str:
    """The innermost line outside of libraries, such as `my_job.py:14 in run`; may be empty."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library(file):
            return _line(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=MOST)
def _line(file: str, number: int, function: str) -> str:
    return f"{Path(file).name}:{number} in {function}"


def _length(given: Any) -> int | None:
    try:
        return len(given) if isinstance(given, Sized) else None
    except TypeError:  # an array of numpy without dimensions has none
        return None


def _used(name: str, modules: Collection[str]) -> bool:
    if name in sys.modules:
        return True
    if not any(each == name or each.startswith(f"{name}.") for each in modules):
        return False
    try:
        import_module(name)
    except ImportError:  # the workload says so itself, in its own words
        return False
    return True


def _noting(notes: Notes, call: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noting(*args: Any, **options: Any) -> Any:
        made = original(*args, **options)
        if call in DIVIDED:
            made = _divided(original, made, args, options)
        notes.add(call, args[0] if args else None, made)
        return made

    return noting


def _divided(original: Callable[..., Any], made: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    # again with as many partitions as the configuration asks for, if those are more
    asked = dask.config.get(NPARTITIONS, 0)
    if not isinstance(asked, int) or asked < 0:
        raise InvalidField(NPARTITIONS, asked, "a number of partitions")
    if asked == 0:
        return made
    given = inspect.signature(original).bind(*args, **options).arguments
    data = next(iter(given.values()))
    enough = min(asked, _length(data) or 0)
    if getattr(made, "npartitions", enough) >= enough:
        return made
    others = {name: value for name, value in given.items() if name not in ("partition_size", "chunksize")}
    return original(**{**others, "npartitions": enough})


def _creating(notes: Notes, constructor: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(constructor)
    def creating(self: Any, *args: Any, **options: Any) -> None:
        constructor(self, *args, **options)
        elements = getattr(self, "values", None)
        where = line_of_user(sys._getframe(1))
        if isinstance(elements, Sized) and where:
            notes.created.setdefault(len(elements), set()).add(where)

    return creating


def _rebind(original: object, replacement: object) -> None:
    # every module-level name: users import functions by name
    for module in list(sys.modules.values()):
        names = vars(module) if isinstance(module, ModuleType) else {}
        for name, value in list(names.items()):
            if value is original:
                names[name] = replacement  # a module may have attributes of its own kind
