"""Notes the largest part of each large graph that a client sends: its layer, and an argument or variable.

A graph below `NOTED_BYTES` costs one more function call. In a larger graph, at most `VISITS` objects are examined.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.sizeof import sizeof
from dask.utils import funcname, key_split
from distributed import Client

from scalescope.capture.instrument import Hook
from scalescope.model.large_part import ALL_TASKS, LargePart, graph_bytes

NOTED_BYTES = 1_000_000  # smallest graph that is noted, in bytes as sent
PART = 0.1  # smallest share of the graph's bytes that a noted part has
MOST = 20  # most graphs that are noted in a trial; the largest are kept
VISITS, DEPTH = 20_000, 10  # most objects examined in one graph; deepest nesting
SAMPLED, MANY = 1_000, 1_000  # about how many tasks of a layer are examined; larger containers are only sized
_NOTHING = (bool, int, float, complex, type, ModuleType)  # types whose values are small, or not sent
_LEAVES = (str, bytes, bytearray, memoryview)
# Arguments that hold the user's own arguments
_WRAPPING = ("argument `parameters`", "argument `args`", "argument `kwargs`")

# Largest objects of earlier graphs: by id (with a weak reference) or, for texts and bytes, by hash
_Sent = dict[int, "weakref.ref[Any] | None"]


def large_part_hooks(
    found: list[LargePart], line: Callable[[Any], str], failed: Callable[[Exception], None] | None = None
) -> list[tuple[Any, Hook]]:
    """Functions of the client, with hooks that note the largest part of each large graph that the client sends."""
    packed = threading.local()
    sent_before: _Sent = {}

    def sending(client: Client, message: Any) -> None:
        if message.get("op", "").startswith("update-graph"):
            packed.nbytes = graph_bytes(message)

    def packing(client: Client, graph: Any, *others: Any) -> Any:
        packed.nbytes = 0
        return graph

    def sent(graph: Any, futures: Any) -> Any:
        smallest = min((part.graph_nbytes for part in found), default=0) if len(found) >= MOST else NOTED_BYTES
        if packed.nbytes > smallest:
            try:
                part = largest_part(graph, packed.nbytes, sent_before)
            except Exception:  # noqa: BLE001 - attributes of the user's objects can raise anything
                part = None
            if part is not None:
                found.append(replace(part, where=line(sys._getframe(2))))
                found.sort(key=lambda each: -each.graph_nbytes)
                del found[MOST:]
        return futures

    return [
        (Client._send_to_scheduler, Hook(sending, failed=failed)),
        (Client._graph_to_futures, Hook(packing, leave=sent, failed=failed)),
    ]


@dataclass(frozen=True)
class _Place:
    layer: str = ""
    what: str = ""


@dataclass
class _Found:
    kind: str = ""
    value: Any = None  # the largest object
    largest: int = 0
    nbytes: int = 0
    calls: int = 0


def largest_part(graph: Any, graph_nbytes: int, sent_before: _Sent) -> LargePart | None:
    """The part of a graph with most bytes.

    If no part has the share `PART`: all tasks together, or None if the graph has at most `SAMPLED` tasks.
    Adds the largest object to `sent_before`.
    """
    search = _Search()
    search.graph(graph)
    place, most = max(search.found.items(), key=lambda item: item[1].nbytes, default=(_Place(), _Found()))
    tasks = search.tasks
    if most.nbytes < PART * graph_nbytes:
        known = tasks > SAMPLED
        return LargePart(graph_nbytes, "", ALL_TASKS, "", graph_nbytes, tasks, "", tasks=tasks) if known else None
    nbytes = min(most.nbytes, graph_nbytes)  # many small objects are smaller when packed
    again = _again(most.value, sent_before)
    what = place.what or "the data"
    return LargePart(graph_nbytes, place.layer, what, most.kind, nbytes, most.calls, "", again, tasks)


def _again(value: Any, sent_before: _Sent) -> bool:
    if isinstance(value, str | bytes):  # cannot be weakly referenced, but their hash is cached
        again, sent_before[hash(value)] = hash(value) in sent_before, None
        return again
    known = sent_before.get(id(value))
    if known is not None and known() is value:
        return True
    with suppress(TypeError):  # a dict or list cannot be weakly referenced: it always counts as new
        sent_before[id(value)] = weakref.ref(value)
    return False


class _Search:
    """Walks through a graph, and adds up the sizes of objects by layer and argument."""

    def __init__(self) -> None:
        self.found: dict[_Place, _Found] = {}
        self.tasks = 0  # tasks of all layers except blockwise layers, whose tasks the scheduler makes
        self._seen: set[int] = set()
        self._of_task: set[_Place] = set()  # places of objects found in the current task
        self._visits = 0

    def graph(self, graph: Any) -> None:
        if isinstance(graph, Delayed):  # first, because a `Delayed` seems to have any attribute
            graph = graph.dask
        if hasattr(graph, "operands"):  # second, because an expression takes other attributes for columns
            self._expression(graph)
        elif layers := getattr(graph, "layers", None):
            needed_by = {need: name for name, needs in graph.dependencies.items() for need in needs}
            for name, layer in layers.items():
                # Dask puts a large argument of `map_blocks` or `from_array` into a layer of its own
                alone = isinstance(layer, Mapping) and not hasattr(layer, "indices") and len(layer) == 1
                self._layer(key_split(needed_by.get(name, name) if alone else name), layer)
        elif isinstance(graph, Mapping):
            self._tasks(graph)

    def _expression(self, expression: Any) -> None:
        names = type(expression)._parameters
        layer = key_split(getattr(expression, "_name", "") or "") if "dsk" not in names else ""
        if "iterables" in names:  # the graph of a `Client.map`
            given = dict(zip(names, expression.operands, strict=False))
            layer = given["key"] if isinstance(given["key"], str) else key_split(next(iter(given["key"]), ""))
            calls = min(map(len, given["iterables"]), default=0)
            for args in islice(zip(*given["iterables"], strict=False), 0, None, _step(calls)):
                self._call(layer, given["func"], args, {})
            for name, value in given["kwargs"].items():
                self._visit(value, _Place(layer, f"argument `{name}`"), calls=calls)
            return
        for name, value in zip((*names, *[""] * len(expression.operands)), expression.operands, strict=False):
            if hasattr(value, "operands") or hasattr(value, "layers") or (name == "dsk" and isinstance(value, Mapping)):
                self.graph(value)
            elif isinstance(value, list | tuple) and value and all(hasattr(each, "operands") for each in value):
                for each in value:
                    self.graph(each)
            else:
                self._visit(value, _Place(layer, f"argument `{name}`" if name else ""))

    def _layer(self, name: str, layer: Any) -> None:
        task = getattr(layer, "task", None)
        if task is None and not hasattr(layer, "indices"):
            self._tasks(layer, name)
            return
        if task is not None:
            self._task(name, task)
        elif isinstance(getattr(layer, "dsk", None), Mapping):  # before dask 2024.11
            for each in layer.dsk.values():
                self._task(name, each)
        for value, index in getattr(layer, "indices", ()):
            if index is None:
                self._visit(value, _Place(name, f"an argument of `{name}`"))
        for dependency in getattr(layer, "io_deps", {}).values():
            self._visit(getattr(dependency, "mapping", None), _Place(name, f"the inputs of `{name}`"))

    def _tasks(self, tasks: Mapping[Any, Any], layer: str = "") -> None:
        self.tasks += len(tasks)
        for key, task in islice(tasks.items(), 0, None, _step(len(tasks))):
            self._task(layer or key_split(key), task)

    def _task(self, layer: str, task: Any) -> None:
        self._of_task.clear()
        if isinstance(task, tuple) and task and callable(task[0]):  # before dask 2024.11
            self._call(layer, task[0], task[1:], {})
        elif hasattr(task, "func") and hasattr(task, "args"):
            self._call(layer, task.func, task.args, getattr(task, "kwargs", {}))
        else:
            self._visit(getattr(task, "value", task), _Place(layer))

    def _call(self, layer: str, function: Any, args: Iterable[Any], options: Mapping[str, Any]) -> None:
        self._of_task.clear()
        self._visit(function, _Place(layer, f"`{funcname(function)}` itself"))
        names = _names(function)
        for number, value in enumerate(args):
            name = names[number] if number < len(names) else str(number)
            self._visit(value, _Place(layer, f"argument `{name}`"))
        for name, value in options.items():
            self._visit(value, _Place(layer, f"argument `{name}`"))

    def _visit(self, value: Any, place: _Place, depth: int = 0, calls: int = 1) -> None:
        self._visits += 1
        if value is None or isinstance(value, _NOTHING) or self._visits > VISITS:
            return
        module = type(value).__module__.partition(".")[0]
        if module == "distributed" or depth > DEPTH:
            return
        size, many = 0, False
        if isinstance(value, _LEAVES):
            size = len(value)
        elif isinstance(value, dict | list | tuple | set | frozenset):
            size = sizeof(value) if (many := len(value) > MANY) else 0
        elif hasattr(type(value), "nbytes") and not is_dask_collection(value):
            size = int(value.nbytes)
        elif module == "pandas":
            size = sizeof(value)
        if size or many:
            self._add(value, size, place, calls)
        else:
            for inner, at in _parts(value, place):
                self._visit(inner, at, depth + 1, calls)

    def _add(self, value: Any, size: int, place: _Place, calls: int) -> None:
        found = self.found.setdefault(place, _Found())
        if place not in self._of_task:
            self._of_task.add(place)
            found.calls += calls
        if id(value) not in self._seen:
            self._seen.add(id(value))
            found.nbytes += size
            if size > found.largest:
                found.largest, found.kind, found.value = size, _kind(value), value


def _parts(value: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    parts = next((parts for is_one, parts in _KINDS if is_one(value)), _attributes)
    return parts(value, place)


def _of_mapping(value: Mapping[Any, Any], place: _Place) -> Iterator[tuple[Any, _Place]]:
    for name, each in value.items():
        named = place.what in _WRAPPING and isinstance(name, str)
        yield each, replace(place, what=f"argument `{name}`") if named else place


def _of_collection(value: Iterable[Any], place: _Place) -> Iterator[tuple[Any, _Place]]:
    return ((each, place) for each in value)


def _of_partial(value: functools.partial[Any], place: _Place) -> Iterator[tuple[Any, _Place]]:
    yield from _of_collection((value.func, *value.args), place)
    yield from ((each, replace(place, what=f"argument `{name}`")) for name, each in value.keywords.items())


def _of_method(value: MethodType, place: _Place) -> Iterator[tuple[Any, _Place]]:
    owner = type(value.__self__).__name__
    yield value.__self__, replace(place, what=f"`self` of `{owner}.{value.__func__.__name__}`")


def _of_function(value: FunctionType, place: _Place) -> Iterator[tuple[Any, _Place]]:
    for name, each in _variables(value):
        # a decorator's object with the wrapped function in `fn`, such as a Prefect task
        kept = isinstance(each, FunctionType | MethodType) or "fn" in getattr(each, "__dict__", ())
        yield each, place if kept else replace(place, what=f"variable `{name}`, which the function uses,")


def _of_task(value: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    return _of_collection((value.func, *value.args, *getattr(value, "kwargs", {}).values()), place)


def _attributes(value: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    return _of_collection(getattr(value, "__dict__", {}).values(), place)


def _is_a(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _is_task(value: Any) -> bool:
    return hasattr(type(value), "func") and hasattr(type(value), "args")


# How to look into a value: the first test that is true decides. If none is, the value's attributes are examined
_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, _Place], Iterator[tuple[Any, _Place]]]], ...] = (
    (_is_a(Mapping), _of_mapping),
    (_is_a(list, tuple, set, frozenset), _of_collection),
    (_is_a(functools.partial), _of_partial),
    (_is_a(MethodType), _of_method),
    (_is_a(FunctionType), _of_function),
    (_is_task, _of_task),  # a task within a task
)


def _step(count: int) -> int:
    return max(count // SAMPLED, 1)


def _names(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # written in C, or not callable
        return []


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values sent with a function: closure, defaults and, if it is sent by value, its globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is not set yet
            continue
    yield from zip(_names(function)[-len(function.__defaults__ or ()) :], function.__defaults__ or (), strict=False)
    if function.__module__ == "__main__":
        for name in function.__code__.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _kind(value: Any) -> str:
    named, shape = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}", getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{named} {shape}".replace(",)", ")")
    return f"{named} of {len(value):,}" if hasattr(value, "__len__") else named
