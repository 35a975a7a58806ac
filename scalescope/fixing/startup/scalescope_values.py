"""Notes what the client gets from the cluster, in the process of a script that `scalescope fix` runs.

It also notes the empty results by which Dask learns what a function of the script returns, in the form of `meta=`.

A value is noted as a line of text, in which numbers can be compared. The text of an array of decimal numbers has sums
that change with the values, their signs and their order. The items of lists, tuples and dictionaries are noted one by
one, since a patched script may get the same values one by one or all together.
"""

import atexit
import functools
import inspect
import json
import os
import sys
import threading
from collections import Counter

TYPE_CHECKING = False  # `typing.TYPE_CHECKING` without the import
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import ModuleType
    from typing import Any, NoReturn

GETS = {"dask.base": ("compute",), "distributed.client": ("Client.gather", "Future.result")}
EMULATES = "dask.dataframe.dask_expr._expr"  # module whose `emulate` calls functions on made-up data
PRIVATE = ("_calculate_divisions",)  # functions that get values for Dask itself; these values vary with the plan
PLAIN = (bool, int, str, bytes, type(None))
PIECE = 1 << 20  # elements of an array that are summed at a time


class Values:
    """Counts values by their text, and writes the counts to a file when Python ends."""

    def __init__(self, file: str) -> None:
        self.file, self.pid, self.seen, self.within = file, os.getpid(), Counter[str](), threading.local()
        self.metas: dict[str, list[str]] = {}  # `meta=` by the name of the function
        atexit.register(self.write)
        self.exit, os._exit = os._exit, self.at_once  # the driver of a sweep ends by calling `os._exit`

    def watch(self, module: "ModuleType") -> None:
        if module.__name__ == EMULATES:
            setattr(module, "emulate", self.noting_metas(getattr(module, "emulate")))  # noqa: B009, B010
            return
        for path in GETS[module.__name__]:
            holder, _, name = path.rpartition(".")
            place = getattr(module, holder) if holder else module
            setattr(place, name, self.noting(getattr(place, name)))
        if module.__name__ == "distributed.client":
            module.as_completed._get_and_raise = self.noting_pairs(module.as_completed._get_and_raise)

    def noting(self, get: "Callable[..., Any]") -> "Callable[..., Any]":
        @functools.wraps(get)
        def noted(*arguments: "Any", **options: "Any") -> "Any":
            if getattr(self.within, "busy", False):  # a way to get values may call another one: count once
                return get(*arguments, **options)
            self.within.busy = True
            try:
                value = get(*arguments, **options)
            finally:
                self.within.busy = False
            if sys._getframe(1).f_code.co_name in PRIVATE:
                return value
            if inspect.isawaitable(value):
                return self.awaited(value)
            self.note(value, arguments if get.__name__ == "compute" else ())
            return value

        return noted

    def noting_pairs(self, get: "Callable[..., Any]") -> "Callable[..., Any]":
        """Wrap the method of `as_completed` that returns a future, or a future and its result."""

        @functools.wraps(get)
        def noted(completed: "Any") -> "Any":
            found = get(completed)
            if completed.with_results:
                self.note(found[1])
            return found

        return noted

    def noting_metas(self, emulate: "Callable[..., Any]") -> "Callable[..., Any]":
        @functools.wraps(emulate)
        def noted(*arguments: "Any", **options: "Any") -> "Any":
            found = emulate(*arguments, **options)
            name = next((each.__name__ for each in arguments if inspect.isfunction(each)), "")
            self.metas.setdefault(name, []).append(as_meta(found))
            return found

        return noted

    async def awaited(self, value: "Awaitable[Any]") -> "Any":
        found = await value
        self.note(found)
        return found

    def note(self, value: "Any", given: "tuple[Any, ...]" = ()) -> None:
        """Count a value, without the parts that `given` holds: `dask.compute` returns what is not lazy unchanged."""
        try:
            self.seen.update(Counter(told(value)) - Counter(told(given)))
        except Exception as error:  # noqa: BLE001 - the code of one of the script's objects raises
            self.seen[f"{type(value).__name__} {type(error).__name__}"] += 1

    def at_once(self, status: int) -> "NoReturn":
        self.write()
        self.exit(status)

    def write(self) -> None:
        if os.getpid() == self.pid and (self.seen or self.metas):
            with open(self.file, "w", encoding="ascii") as stream:
                json.dump({"values": self.seen, "metas": self.metas}, stream)


def as_meta(value: "Any") -> str:
    """Text for `meta=` of results like this Series or DataFrame, such as `('x', 'float64')`; empty for other types."""
    kind = type(value).__name__
    if kind == "Series" and (value.name is None or type(value.name) is str):
        return repr((value.name, str(value.dtype)))
    if kind == "DataFrame" and all(type(each) is str for each in value.columns):
        return repr({name: str(each) for name, each in value.dtypes.items()})
    return ""


def told(value: "Any") -> "Iterator[str]":
    """The texts of a value, or of the values that it holds."""
    kind = type(value).__name__
    if type(value) in PLAIN:
        text = repr(value)
        yield f"{kind} {text if len(text) < 100 else token(value)}"
    elif type(value) in (float, complex):
        yield f"{kind} {value!r}"
    elif type(value) in (list, tuple):
        for each in value:
            yield from told(each)
    elif type(value) is dict:
        for name, each in value.items():
            yield from (f"{name!r}: {text}" for text in told(each))
    elif hasattr(value, "__dask_graph__") or kind == "Future":
        yield kind  # a lazy value: its name depends on how it was made
    elif kind == "DataFrame" and hasattr(value, "items"):
        yield f"{kind} {len(value)} {token(value.index)}"
        for name, each in value.items():
            yield from (f"{name!r}: {text}" for text in told(each.array))
    elif kind == "Series" and hasattr(value, "array"):
        yield f"{kind} {token(value.index)}"
        yield from told(value.array)
    elif kind == "Dataset" and hasattr(value, "variables"):
        for name, each in value.variables.items():
            yield from (f"{name!r} {each.dims}: {text}" for text in told(each.values))
    elif kind == "DataArray" and hasattr(value, "variable"):
        yield from (f"{value.dims}: {text}" for text in told(value.values))
    elif is_of_numbers(value):
        yield f"{kind} {of_numbers(value)}"
    else:
        yield f"{kind} {token(value)}"


def is_of_numbers(value: "Any") -> bool:
    """Whether a value is an array or a NumPy scalar of decimal numbers."""
    decimal = str(getattr(getattr(value, "dtype", ""), "kind", "")) in ("f", "c")
    return decimal and hasattr(value, "__array__") and type(value).__name__ != "MaskedArray"


def of_numbers(value: "Any") -> str:
    """Type, shape, number of elements not finite, and two sums of an array: of absolute and of weighted values."""
    import numpy as np

    array = np.asarray(value)
    flat = array.ravel()
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    amounts = placed = 0.0
    odd = 0  # number of elements that are not finite
    for begin in range(0, len(flat), PIECE):
        piece = flat[begin : begin + PIECE].astype(float)
        finite = np.isfinite(piece)
        odd += len(piece) - int(finite.sum())
        piece = np.where(finite, piece, 0.0)
        weights = 1 + (np.arange(begin, begin + len(piece)) * 0.6180339887498949) % 1
        amounts += float(np.abs(piece).sum())
        placed += float(((2 * np.abs(piece) + piece) * weights).sum())
    return f"{array.dtype} {array.shape} {odd} {amounts!r} {placed!r}"


def token(value: "Any") -> str:
    from dask.tokenize import tokenize

    return str(tokenize(value))
