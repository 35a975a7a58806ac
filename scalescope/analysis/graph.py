"""The recorded dependency graph, as arrays over the attempts of `Attempts`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats, Ints
from scalescope.analysis.events import Tables
from scalescope.errors import CaptureError

LEVELS = 32  # levels of a graph, counted from its roots, that are computed as arrays; deeper edges one by one


@dataclass(frozen=True)
class Graph:
    """For each node, the nodes whose results it needs, as compressed sparse rows.

    Nodes are the elements of `Attempts`; node `i` needs `needs[first[i]:first[i + 1]]`, all of them smaller than `i`.
    """

    first: Ints  # index in `needs` at which each node's needs begin; shape (nodes + 1,)
    needs: Ints  # node numbers; shape (edges,)
    known: bool = True  # False: dependencies were not recorded

    @classmethod
    def of(cls, nodes: int, node: Ints, needs: Ints, *, known: bool = True) -> Graph:
        """A graph from distinct edges in any order; raises `CaptureError` if a node needs a later node."""
        wrong = np.flatnonzero(needs >= node)
        if len(wrong):
            raise CaptureError(
                f"dependencies on tasks that ended later: {len(wrong):,}; the first: row {node[wrong[0]]} needs row "
                f"{needs[wrong[0]]}",
                where="table dependencies",
                cause="the tables dependencies and tasks are of different trials, or the rows of one were reordered",
                next_step="run the trial again",
            )
        order = np.argsort(node, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes))]).astype(np.int64)
        return cls(first, needs[order], known)

    @classmethod
    def read(cls, tables: Tables, attempts: Attempts) -> Graph:
        """The graph of one trial. If it has no edges, it is known only if no `span` exceeds the task's duration."""
        table = tables.get("dependencies", {})
        task, needs = (np.asarray(table.get(name, ()), dtype=np.int64) for name in ("task", "needs"))
        nodes = len(attempts.start)
        if not len(task):
            known = not bool(np.any(attempts.span > (attempts.stop - attempts.start) * (1 + 1e-6) + 1e-6))
            return cls(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int64), known)
        rows = len(tables["tasks"]["key"])
        if min(task.min(), needs.min()) < 0 or max(task.max(), needs.max()) >= rows:
            raise CaptureError(
                f"dependencies name rows {min(task.min(), needs.min())} to {max(task.max(), needs.max())} of {rows}",
                where="table dependencies",
                cause="the tables are of different trials, or task rows were dropped",
                next_step="run the trial again",
            )
        node = np.full(rows, -1)
        node[attempts.row] = np.arange(nodes)
        task, needs = node[task], node[needs]
        began = (task >= 0) & (needs >= 0)
        return cls.of(nodes, task[began], needs[began])

    def __len__(self) -> int:
        return len(self.first) - 1

    @cached_property
    def node(self) -> Ints:
        return np.repeat(np.arange(len(self)), np.diff(self.first))  # one element per edge

    def restricted(self, kept: Bools) -> Graph:
        number = np.cumsum(kept) - 1
        inside = kept[self.node] & kept[self.needs]
        return Graph.of(int(kept.sum()), number[self.node[inside]], number[self.needs[inside]], known=self.known)

    def earliest(self, seconds: Floats) -> Floats:
        return longest(np.zeros(len(self)), seconds, self.needs, self.node)


def longest(value: Floats, step: Floats, begin: Ints, end: Ints) -> Floats:
    """Longest paths: raise each `value[end]` to `value[begin] + step[begin]`; edges are in topological order."""
    found = value.copy()
    for _ in range(LEVELS):
        if not len(begin):
            return found
        waits = np.zeros(len(found), dtype=bool)
        waits[end] = True
        known = ~waits[begin]
        np.maximum.at(found, end[known], (found + step)[begin[known]])
        begin, end = begin[~known], end[~known]
    values, steps = found.tolist(), step.tolist()
    for here, there in zip(begin.tolist(), end.tolist(), strict=True):
        reached = values[here] + steps[here]
        if reached > values[there]:
            values[there] = reached
    return np.array(values)
