"""Finds problems in a graph that was not computed: too many tasks, tiny or large blocks, repeated work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, TaskRef
from dask.utils import funcname, key_split

from scalescope.checking.graph import TaskGraph
from scalescope.diagnosis.partitions import fewer, more
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.large_part import LargePart
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.words import duration, plural, size

MANY_TASKS = 100_000  # number of tasks from which a graph is reported: the scheduler alone takes more than a minute
TASK_S = 0.001  # overhead of scheduler and worker for each task, in seconds
FEW = 100  # fewest tasks of a layer whose block sizes are judged
TINY, GOOD, LARGE = 1 << 20, 100 << 20, 1 << 30  # bytes of a block: too small; as Dask advises; too large
SMALL = 16 << 20  # bytes; a layer that multiplies blocks is reported only if its blocks are smaller
FEW_NAMES = 2_000  # number of layers up to which an array of all pairs of layers is small enough
MULTIPLIED = 8  # smallest factor on the number of blocks that is reported
LARGE_GRAPH = 10_000_000  # bytes from which a graph is reported; Dask warns from there on, too
DOUBT = 8  # factor by which an assumed size may be wrong
COMPARED = 100_000  # most tasks of a graph in which equal calls are looked for
LIST = 1_000  # most items of a list that is compared by its content
TARGET = 0.60  # share of a worker's memory limit from which it writes results to disk
NO_SPLIT = '`dask.config.set({"array.slicing.split_large_chunks": False})`'


@dataclass(frozen=True)
class Looked:
    """The data from which findings are made."""

    graph: TaskGraph
    nbytes: np.ndarray[Any, np.dtype[np.float64]]  # bytes of each task's result
    within: np.ndarray[Any, np.dtype[np.float64]]  # bytes of the largest array in each task, intermediate or result
    told: np.ndarray[Any, np.dtype[np.bool_]]  # for each task, True if `nbytes` is known from metadata
    sent: int  # bytes of the packed graph
    calls: Sequence[PartitionCall]  # calls that made partitions
    where: Callable[[str], str]  # gives the line of the user's code that made a layer, by the layer's name
    part: LargePart | None  # largest object in the graph; None if the graph is small
    threads: int | None  # total number of threads that the user wants; None: unknown

    def layers(self) -> Iterator[tuple[str, int, np.ndarray[Any, np.dtype[np.int64]]]]:
        """Name, number and tasks of each layer."""
        names, code = self.graph.names
        order = np.argsort(code, kind="stable")
        ends = np.cumsum(np.bincount(code, minlength=len(names)))
        for place, name in enumerate(names):
            yield name, place, order[ends[place - 1] if place else 0 : ends[place]]


def findings(looked: Looked) -> list[Finding]:
    found = [each for rule in RULES for each in rule(looked)]
    return sorted(found, key=Finding.rank)


def _place(looked: Looked, name: str) -> Place | None:
    return Place.of(looked.where(name)) if looked.where(name) else None


def _root(looked: Looked) -> PartitionCall | None:
    return max(looked.calls, key=lambda each: each.partitions, default=None)


def _coarser(looked: Looked, block: float, goal: float = GOOD) -> tuple[str, str]:
    """Advice on how to make partitions larger, and the gain; both empty if no call that makes them is known."""
    call = _root(looked)
    times = max(int(goal / max(block, 1.0)), 2)
    if call is None or call.partitions < 2:
        return "", ""
    advice, left = fewer(call, min(times, call.partitions))
    tasks = math.ceil(len(looked.graph) * left / call.partitions)
    brings = (
        f"about {plural(tasks, 'task')} instead of {len(looked.graph):,}, blocks of up to "
        f"{size(block * call.partitions / left)} instead of {size(block)}"
    )
    at = f" at {call.where}" if call.where else ""
    return f"{advice} in `{call.call}`{at}", brings


def _with(advice: tuple[str, str], otherwise: str) -> str:
    text, brings = advice
    return f"{text}: {brings}" if text else otherwise


def _multiplied(looked: Looked) -> Iterator[Finding]:
    """A layer that turns its input into many more, small blocks, such as a slice, a reshape or a group-by."""
    names, code = looked.graph.names
    counts = np.bincount(code, minlength=len(names))
    pairs = code[looked.graph.task] * len(names) + code[looked.graph.needs]
    edge = np.flatnonzero(np.bincount(pairs)) if len(names) < FEW_NAMES else np.unique(pairs)
    whole, part = np.divmod(edge, len(names))
    before = np.zeros(len(names), np.int64)
    np.maximum.at(before, whole[whole != part], counts[part[whole != part]])
    blocks = np.bincount(code, weights=looked.nbytes, minlength=len(names)) / np.maximum(counts, 1)
    grown = (before > 1) & (counts >= MULTIPLIED * before) & (counts >= FEW) & (blocks < SMALL) & (blocks > 0)
    for place in np.flatnonzero(grown)[np.lexsort((before[grown], -counts[grown]))][:1].tolist():
        was, now = int(before[place]), int(counts[place])
        name = key_split(names[place])
        remedy = f"`.rechunk(...)` right after that call, or {NO_SPLIT} around a slice by a sorted index"
        if "rechunk" in name:
            remedy = "chunk both sides alike before they meet (`b = b.rechunk(a.chunks)`), or rechunk to larger blocks"
        elif any(word in name for word in ("groupby", "take", "shuffle")):
            remedy = f"sort or rechunk along that axis first, so that a group lies in few chunks, or {NO_SPLIT}"
        yield Finding(
            "chunks-multiplied",
            Severity.MEDIUM,
            f"`{name}` turns {was:,} blocks into {now:,} of {size(blocks[place])} each.",
            remedy,
            (Evidence("blocks before", was, "graph"), Evidence("blocks after", now, "graph")),
            confidence=0.8,
            place=_place(looked, names[place]),
        )


def _tiny(looked: Looked) -> Iterator[Finding]:
    """Input blocks so small that the overhead of their tasks costs more than the work."""
    graph = looked.graph
    level0 = np.zeros(len(graph), dtype=bool)
    level0[graph.level == 0] = True
    level0 &= graph.works & (looked.nbytes > 0)
    for name, _, tasks in looked.layers():
        own = tasks[level0[tasks]]
        if len(own) < FEW or len(own) != len(tasks):
            continue
        block = float(np.median(looked.within[own]))
        if block >= (TINY if looked.told[own].all() else TINY / DOUBT):
            continue
        call = _root(looked)
        chunk = f" (chunks of {call.chunk})" if call is not None and call.chunk else ""
        yield Finding(
            "tiny-blocks",
            Severity.MEDIUM,
            f"{len(own):,} blocks of `{key_split(name)}` hold {size(block)} each{chunk}: about "
            f"{duration(TASK_S * len(graph))} of scheduling for {size(float(looked.within[own].sum()))}.",
            _with(_coarser(looked, block), "larger chunks or partitions, of about 100 MiB"),
            (Evidence("blocks", len(own), "graph"), Evidence("bytes of a block", round(block), "sizes")),
            confidence=0.9,
            place=_place(looked, name) or (Place.of(call.where) if call is not None and call.where else None),
        )
        return


def _large_blocks(looked: Looked) -> Iterator[Finding]:
    most = int(looked.within.argmax())
    block = float(looked.within[most])
    if block < LARGE:
        return
    names, code = looked.graph.names
    name = names[code[most]]
    call = _root(looked)
    finer = more(call, math.ceil(call.partitions * block / GOOD)) if call is not None else ""
    yield Finding(
        "large-blocks",
        Severity.MEDIUM,
        f"A block of `{key_split(name)}` has {size(block)}, and each thread of a worker usually holds several blocks "
        "at once.",
        finer or "smaller chunks or partitions, of about 100 MiB",
        (Evidence("bytes of the largest block", round(block), "sizes"),),
        confidence=0.9 if looked.told[most] else 0.5,
        place=_place(looked, name),
    )


def _many(looked: Looked) -> Iterator[Finding]:
    tasks = len(looked.graph)
    if tasks < MANY_TASKS:
        return
    block = float(np.median(looked.within[looked.graph.works]))
    names, code = looked.graph.names
    most = int(np.bincount(code).argmax())
    yield Finding(
        "too-many-tasks",
        Severity.MEDIUM,
        f"{tasks:,} tasks: the scheduler alone needs about {duration(TASK_S * tasks)}, with any number of workers.",
        _with(_coarser(looked, block), "larger chunks or partitions, or functions that do several steps"),
        (Evidence("tasks", tasks, "graph"), Evidence("step with most tasks", key_split(names[most]), "graph")),
        confidence=0.9,
        place=_place(looked, names[most]),
    )


def _few(looked: Looked) -> Iterator[Finding]:
    widest = int(looked.graph.width.max(initial=0))
    if looked.threads is None or widest >= looked.threads:
        return
    call = _root(looked)
    finer = more(call, looked.threads) if call is not None else ""
    yield Finding(
        "too-few-partitions",
        Severity.MEDIUM if widest > looked.threads / 2 else Severity.HIGH,
        f"At most {plural(widest, 'task')} can run at once: {looked.threads - widest:,} of {looked.threads:,} threads "
        "never get one.",
        finer or f"make at least {looked.threads:,} partitions or chunks, or take fewer workers",
        (Evidence("tasks of the widest stage", widest, "graph"), Evidence("threads", looked.threads, "asked")),
        confidence=0.95,
        place=Place.of(call.where) if call is not None and call.where else None,
    )


def _large_graph(looked: Looked) -> Iterator[Finding]:
    if looked.sent < LARGE_GRAPH:
        return
    part = looked.part
    what = f" {part.sentence(size(part.nbytes))}" if part is not None else ""
    yield Finding(
        "large-graph",
        Severity.MEDIUM,
        f"The client sends {size(looked.sent)} with the graph.{what}",
        "load the data within tasks, or `client.scatter` the data once",
        (Evidence("bytes of the graph", looked.sent, "packed"),),
        place=_place(looked, part.layer) if part is not None else None,
    )


def _twice(looked: Looked) -> Iterator[Finding]:
    """Calls of the user's functions that are equal, down to their inputs, but have different keys."""
    graph = looked.graph
    if len(graph) > COMPARED or not any(isinstance(key, str) for key in graph.keys):
        return
    made: dict[Any, list[int]] = {}
    signature: list[Any] = [None] * len(graph)
    for task in graph.order.tolist():
        node = graph.nodes[task]
        signature[task] = sign = _signature(
            node, lambda key: signature[graph.number[key]] if key in graph.number else key
        )
        if graph.works[task] and isinstance(graph.keys[task], str):
            made.setdefault(sign, []).append(task)
    alike = [tasks for tasks in made.values() if len(tasks) > 1 and _is_given_data(graph.nodes[tasks[0]])]
    if not alike:
        return
    most = max(alike, key=len)
    name = graph.keys[most[0]]
    again = sum(len(tasks) - 1 for tasks in alike)
    lines = list(dict.fromkeys(filter(None, (looked.where(graph.keys[task]) for task in most))))[:2]
    at = f" (made at {' and '.join(lines)})" if lines else ""
    yield Finding(
        "computed-twice",
        Severity.MEDIUM,
        f"`{funcname(graph.nodes[most[0]].func)}` is called {len(most):,} times with equal arguments{at}. "
        f"Tasks of the graph that only repeat another: {again:,}.",
        f"call it once and reuse the result, or make equal calls one task: `delayed({key_split(name)}, pure=True)`",
        (Evidence("tasks that repeat another", again, "graph"),),
        confidence=0.7,
        place=Place.of(lines[-1]) if lines else None,
    )


def _signature(node: Any, of: Callable[[Any], Any]) -> Any:
    if isinstance(node, TaskRef):
        return of(node.key)
    if isinstance(node, Alias):
        return of(node.target)
    if isinstance(node, DataNode):
        return _literal(node.value)
    if isinstance(node, GraphNode):
        named = getattr(node, "kwargs", None) or {}
        parts = [_signature(each, of) for each in (*getattr(node, "args", ()), *named.values())]
        return hash((id(getattr(node, "func", node)), *named, *parts))
    if isinstance(node, list | tuple):
        return hash(tuple(_signature(each, of) for each in node))
    return _literal(node)


def _literal(value: Any) -> Any:
    if type(value) is list and len(value) <= LIST:
        return hash(("list", *map(_literal, value)))
    try:
        return hash((type(value), value))
    except TypeError:  # not hashable: a longer list, a dict or an array
        return id(value)


def _is_given_data(node: Any) -> bool:
    """Whether equal calls probably give equal results: `simulate(100)` may be random, `load("a.nc")` is not."""
    given = (*getattr(node, "args", ()), *(getattr(node, "kwargs", None) or {}).values())
    return any(not isinstance(each, int | float | bool | type(None)) for each in given)


def does_not_fit(fullest: float, limit: float, workers: int, threads: int) -> Finding | None:
    """A finding if results fill at least `TARGET` of a worker's memory of `limit` bytes (0: unknown); else None."""
    if not limit or fullest < TARGET * limit:
        return None
    return Finding(
        "does-not-fit",
        Severity.HIGH if fullest > limit else Severity.MEDIUM,
        f"{'The worker' if workers == 1 else f'The fullest of {workers:,} workers'} holds {size(fullest)} of results "
        f"at once. Its limit is {size(limit)}: from {size(TARGET * limit)} on it writes to disk.",
        f"`memory_limit` of {size(fullest / TARGET)}, or {math.ceil(workers * fullest / (TARGET * limit)):,} workers, "
        f"or smaller blocks",
        (Evidence("bytes on the fullest worker", round(fullest), "scheduled"), Evidence("limit", limit, "asked")),
        confidence=0.8,
    )


RULES: Sequence[Callable[[Looked], Iterator[Finding]]] = (
    _few,
    _multiplied,
    _tiny,
    _many,
    _large_blocks,
    _large_graph,
    _twice,
)
