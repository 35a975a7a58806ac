"""Checks Dask collections: tells what their graph will cost, without computing anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from dask._task_spec import DataNode
from dask.base import is_dask_collection, unpack_collections
from dask.utils import key_split

from scalescope.capture.large_parts import largest_part
from scalescope.checking import interception
from scalescope.checking.checked import LAYERS, Checked, Layer
from scalescope.checking.findings import Looked, does_not_fit, findings
from scalescope.checking.frames import frame_sizes
from scalescope.checking.graph import Planned, TaskGraph, planned
from scalescope.checking.peak_memory import MOST, recorded, scheduling
from scalescope.checking.sizes import Sizes
from scalescope.errors import UsageError
from scalescope.model.finding import Finding
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.recorded_graph import RecordedGraph

PLAN = (
    "Dask cannot plan the whole graph before it has computed values, such as the divisions for `set_index`. Only the "
    "computation of these values was checked. With `divisions=` or `sorted=True`, Dask need not compute them."
)
NOTED_BYTES = 1_000_000  # size of a graph, in bytes, from which its largest object is looked for


@dataclass(frozen=True)
class Known:
    """What was noted while collections were built; may be empty."""

    chunks: Mapping[str, Any] = field(default_factory=dict)  # chunks and dtypes of arrays, by name
    lines: Mapping[str, str] = field(default_factory=dict)  # lines of the user's code, by name of a layer
    calls: Sequence[PartitionCall] = ()

    def where(self, name: str) -> str:
        """The line that made a layer; the name of a fused layer ends with the token of its last layer."""
        return self.lines.get(name) or self._by_token.get(name.rpartition("-")[2], "")

    @cached_property
    def _by_token(self) -> dict[str, str]:
        return {str(name).rpartition("-")[2]: line for name, line in self.lines.items()}


def check(collection: Any, *, workers: int = 0, threads: int = 1, memory: float = 0.0, about: str = "") -> Checked:
    """See `scalescope.check`."""
    seen = interception.Seen()
    if callable(collection) and not is_dask_collection(collection):
        about = about or getattr(collection, "__name__", "")
        with interception.intercepted(seen):
            try:
                collection = collection()
            except interception.NeedsValue:
                collection = None
    found = [] if collection is None else collections_in(collection)
    checked, graph = examined(found, seen, about or type(collection).__name__, workers * threads or None)
    return with_memory(checked, graph, workers, threads, memory) if workers else checked


def collections_in(value: Any) -> list[Any]:
    found, _ = unpack_collections(value)
    if not found:
        raise UsageError(
            f"there is no Dask collection in {type(value).__name__}",
            next_step="give an array, dataframe, bag, delayed or xarray object, or a function that returns one",
        )
    own = collections_of(value)
    return own or list(found)


def collections_of(value: Any) -> list[Any]:
    """The collections in a value, unchanged; `unpack_collections` would turn xarray objects into delayed values."""
    if is_dask_collection(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [each for one in value for each in collections_of(one)] if isinstance(value, list | tuple | set) else []


def examined(
    given: Sequence[Any], seen: interception.Seen, about: str, threads: int | None
) -> tuple[Checked, RecordedGraph | None]:
    """Check collections and the graphs in `seen`; return the result, and the graph to schedule or None."""
    graphs = [*seen.graphs]
    if given:
        with interception.intercepted(seen):
            try:
                graphs.append(planned(given))
            except interception.NeedsValue:
                graphs = [*seen.graphs]
                seen.notes.append(PLAN)
    if not graphs:
        raise UsageError("nothing was sent to Dask", where=about, next_step="name a function: module:function")
    known = Known({**seen.chunks, **_chunks_of(given)}, seen.lines, seen.calls or _calls_of(given))
    return _examined(graphs, known, about, threads, seen)


def _examined(
    graphs: Sequence[Planned], known: Known, about: str, threads: int | None, seen: interception.Seen
) -> tuple[Checked, RecordedGraph | None]:
    began = time.perf_counter()
    whole = graphs[0].graph if len(graphs) == 1 else _together(graphs)
    graph = TaskGraph.of(whole, frozenset().union(*(each.wanted for each in graphs)))
    if not len(graph):
        raise UsageError("all results are already on the cluster", where=about)
    frames = {
        name: size
        for each in graphs
        if each.expression is not None
        for name, size in frame_sizes(each.expression).items()
    }
    sizes = Sizes(graph, known.chunks, frames)
    nbytes, told = sizes.all()
    largest = max(graphs, key=lambda each: each.nbytes)
    known_large = largest.nbytes > NOTED_BYTES and largest.expression is not None
    part = largest_part(largest.expression, largest.nbytes, {}) if known_large else None
    sent = sum(each.nbytes for each in graphs)
    looked = Looked(graph, nbytes, sizes.within, told, sent, known.calls, known.where, part, threads)
    checked = Checked(
        about,
        tasks=len(graph),
        widest=int(graph.width.max(initial=0)),
        critical_path=int((graph.level + graph.works).max()),
        input_bytes=_inputs(graph, sizes.made),
        result_bytes=float(nbytes.sum()),
        largest_block=float(sizes.within.max()),
        sizes_told=float(told[graph.works].mean()) if graph.works.any() else 1.0,
        graph_bytes=sent,
        plan_s=sum(each.plan_s for each in graphs),
        materialise_s=sum(each.materialise_s for each in graphs),
        pack_s=sum(each.pack_s for each in graphs),
        analysis_s=0.0,
        findings=tuple(findings(looked)),
        layers=_layers(looked),
        stopped_at=seen.stopped_at,
        stopped_by=seen.stopped_by,
        notes=tuple(seen.notes),
    )
    checked = replace(checked, analysis_s=time.perf_counter() - began)
    if len(graph) > MOST:
        return replace(checked, no_memory=f"not scheduled: more than {MOST:,} tasks"), None
    if not nbytes.any():
        return replace(checked, no_memory="the sizes of the results are unknown"), None
    return checked, recorded(graph, nbytes)


def _together(graphs: Sequence[Planned]) -> dict[Any, Any]:
    """Join graphs: where a later graph has a `Kept` result of an earlier one, take the task of the earlier one."""
    whole: dict[Any, Any] = {}
    for each in graphs:
        for key, node in each.graph.items():
            if key not in whole or not isinstance(getattr(node, "value", None), interception.Kept):
                whole[key] = node
    return whole


def _layers(looked: Looked) -> tuple[Layer, ...]:
    found = [
        Layer(
            key_split(name),
            len(tasks),
            float(looked.nbytes[tasks].sum()),
            float(looked.nbytes[tasks].max()),
            looked.where(name),
        )
        for name, _, tasks in looked.layers()
    ]
    return tuple(sorted(found, key=lambda each: (-each.tasks, -each.nbytes))[:LAYERS])


def _inputs(graph: TaskGraph, made: Any) -> float:
    """Bytes that tasks read, or make without inputs; of an array in the graph, only what its tasks read counts."""
    read = np.zeros(len(graph), dtype=bool)
    for task in np.flatnonzero(np.diff(graph.first) == 0).tolist():
        value = graph.nodes[task].value if isinstance(graph.nodes[task], DataNode) else None
        read[task] = value is not None and hasattr(value, "shape") and hasattr(value, "dtype")
    first = np.zeros(len(graph), dtype=bool)
    first[graph.task[read[graph.needs]]] = True
    return float(np.where(read, 0.0, made)[~first].sum() + np.maximum(made, 0.0)[first].sum())


def _chunks_of(given: Sequence[Any]) -> dict[str, Any]:
    parts = [part for each in given for part in _arrays(each)]
    return {each.name: (each.chunks, each.dtype) for each in parts}


def _calls_of(given: Sequence[Any]) -> list[PartitionCall]:
    """A substitute for the call that made an array, if the call was not noted."""
    arrays = [part for each in given for part in _arrays(each)]
    return [
        PartitionCall("dask.array", "", None, each.npartitions, each.shape, each.chunksize)
        for each in arrays
        if not any(length != length for length in each.shape)
    ][:1]


def _arrays(collection: Any) -> list[Any]:
    """The arrays in an array or an object of xarray."""
    kind = getattr(sys.modules.get("dask.array"), "Array", ())
    if isinstance(collection, kind):
        return [collection]
    if type(collection).__module__.partition(".")[0] != "xarray":
        return []
    variables = getattr(collection, "variables", None) or {"": collection.variable}
    return [each.data for each in variables.values() if isinstance(each.data, kind)]


def with_memory(
    checked: Checked, graph: RecordedGraph | None, workers: int, threads: int, limit: float = 0.0
) -> Checked:
    """The check with peak memory on so many workers and threads. `limit`: bytes of memory per worker; 0: unknown."""
    if graph is None:
        return checked
    with scheduling() as schedule:
        memory = schedule(graph, workers, threads)
    more = does_not_fit(memory.fullest, limit, workers, threads)
    found = sorted([*checked.findings, *([more] if more else [])], key=Finding.rank)
    return replace(checked, memory=memory, findings=tuple(found))
