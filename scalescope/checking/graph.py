"""The graph of tasks that collections become, as arrays; nothing is computed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import dask
import numpy as np
from dask.core import flatten
from dask.utils import key_split
from distributed.protocol import serialize, to_serialize

from scalescope.errors import UsageError

try:
    from dask._task_spec import Alias, DataNode, convert_legacy_graph
    from dask.base import collections_to_expr
except ImportError as error:
    raise UsageError(
        f"`check` needs dask 2025.4 or newer, not {dask.__version__}",
        next_step="-e PATH/TO/python names a Python with a newer dask",
    ) from error

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Planned:
    """A graph as the client would send it, and as the scheduler would materialise it."""

    expression: Any
    graph: Mapping[Any, Any]  # a `GraphNode` by key
    wanted: frozenset[Any]  # keys of the results
    plan_s: float  # seconds to optimise
    materialise_s: float  # seconds that the scheduler takes to make the tasks
    pack_s: float  # seconds to pack the graph
    nbytes: int  # bytes of the packed graph


def planned(given: Any, keys: Any = None, plan_s: float | None = None) -> Planned:
    """Optimise, pack and materialise a graph as `Client.compute` and the scheduler do.

    `given`: collections; or an optimised expression or graph, with the wanted `keys` and the seconds `plan_s` it took.
    """
    is_set = dask.config.get("dataframe.shuffle.method", None) is not None
    # Without a client, Dask would plan shuffles through this machine's disk.
    with nullcontext() if is_set else dask.config.set({"dataframe.shuffle.method": "p2p"}):
        began = time.perf_counter()
        expression = collections_to_expr(given).optimize() if plan_s is None else given
        wanted = frozenset(flatten(expression.__dask_keys__() if keys is None else [keys]))
        optimised = time.perf_counter()
        header, frames = serialize(to_serialize(expression))
        packed = time.perf_counter()
        graph = convert_legacy_graph(expression.__dask_graph__() if hasattr(expression, "walk") else dict(expression))
    made = time.perf_counter()
    return Planned(
        expression if hasattr(expression, "walk") else None,
        graph,
        wanted,
        optimised - began if plan_s is None else plan_s,
        made - packed,
        packed - optimised,
        sum(memoryview(each).nbytes for each in frames) + len(str(header)),
    )


@dataclass(frozen=True)
class TaskGraph:
    """Tasks by number; task `i` needs `needs[first[i]:first[i + 1]]`."""

    keys: Sequence[Any]
    nodes: Sequence[Any]
    first: Ints
    needs: Ints
    works: np.ndarray[Any, np.dtype[np.bool_]]  # False for tasks that are only data, or an alias of another task
    number: Mapping[Any, int]  # number of each task, by its key

    @classmethod
    def of(cls, graph: Mapping[Any, Any], wanted: Iterable[Any]) -> TaskGraph:
        """The graph of tasks that the wanted keys need; keys outside `graph` are results already on the cluster."""
        found = cls._whole(graph)
        missing = np.ones(len(found), dtype=bool)
        missing[found.needs] = False
        ends = [found.keys[number] for number in np.flatnonzero(missing).tolist()]
        if set(ends).issubset(wanted):
            return found
        reached, stack = dict[Any, Any](), [key for key in wanted if key in graph]
        while stack:
            key = stack.pop()
            if key in graph and key not in reached:
                reached[key] = graph[key]
                stack += graph[key].dependencies
        return cls._whole(reached)

    @classmethod
    def _whole(cls, graph: Mapping[Any, Any]) -> TaskGraph:
        keys, nodes = list(graph), list(graph.values())
        number = dict(zip(keys, range(len(keys)), strict=True))
        needed = [node.dependencies for node in nodes]
        counts = np.fromiter(map(len, needed), np.int64, len(nodes))
        needs = np.fromiter(map(number.get, chain.from_iterable(needed), repeat(-1)), np.int64, int(counts.sum()))
        there = needs >= 0
        task = np.repeat(np.arange(len(nodes)), counts)[there]
        first = np.concatenate([[0], np.cumsum(np.bincount(task, minlength=len(nodes)))]).astype(np.int64)
        works = np.fromiter((not isinstance(node, (Alias, DataNode)) for node in nodes), np.bool_, len(nodes))
        return cls(keys, nodes, first, needs[there], works, number)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def task(self) -> Ints:
        """For each element of `needs`, the task that has this need."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @cached_property
    def _levels(self) -> tuple[Ints, Ints]:
        count, step = len(self), self.works.astype(np.int64)
        users = self.task[np.argsort(self.needs, kind="stable")]
        begin = np.concatenate([[0], np.cumsum(np.bincount(self.needs, minlength=count))])
        waiting, level = np.diff(self.first).copy(), np.zeros(count, np.int64)
        ready, order, last = np.flatnonzero(waiting == 0), [], np.zeros(count, np.int64)
        while len(ready):
            order.append(ready)
            lengths = begin[ready + 1] - begin[ready]
            edges = np.repeat(begin[ready] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            there = users[edges]
            np.maximum.at(level, there, np.repeat(level[ready] + step[ready], lengths))
            np.subtract.at(waiting, there, 1)
            there = there[waiting[there] == 0]
            last[there] = np.arange(len(there))
            ready = there[last[there] == np.arange(len(there))]  # keep each task once
        return level, np.concatenate(order) if order else np.zeros(0, np.int64)

    @property
    def level(self) -> Ints:
        """For each task, the number of tasks that must run one after another before it can begin."""
        return self._levels[0]

    @property
    def order(self) -> Ints:
        """All tasks, in an order in which each task follows the tasks that it needs."""
        return self._levels[1]

    @cached_property
    def width(self) -> Ints:
        """The number of tasks at each level."""
        return np.bincount(self.level[self.works])

    @cached_property
    def names(self) -> tuple[list[str], Ints]:
        """Names of the layers, and the layer of each task."""
        codes: dict[str, int] = {}
        # Keys of `submit` and `delayed` are text and differ for each task: such tasks form a layer by their prefix.
        texts = ((key[0] if type(key) is tuple else key_split(key)) for key in self.keys)
        code = np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int64, len(self))
        return [str(name) for name in codes], code
