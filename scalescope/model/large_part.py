"""Parts that make a graph large, as the client saw them before it sent the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalescope.model.mapping import Mapped

ALL_TASKS = "all its tasks"  # `what` of a graph that has no large part


@dataclass(frozen=True)
class LargePart(Mapped):
    """The largest thing in one layer of a graph."""

    graph_nbytes: int  # bytes of the whole graph, as it was sent
    layer: str  # common start of the keys of the layer's tasks, such as `load`
    what: str  # name of the part, such as "argument `table`"
    kind: str  # type and shape of the part, such as `numpy.ndarray (1000, 1000)`
    nbytes: int  # bytes of all copies of the part together
    calls: int  # calls of the function whose arguments hold the part or a copy of it
    where: str  # line of the user's code that sent the graph, such as `my_job.py:14 in run`; may be empty
    again: bool = False  # True if an earlier graph carried the same object
    tasks: int = 0  # tasks of the graph as it was sent, without those of blockwise layers; 0 when unknown

    def sentence(self, size: str) -> str:
        """Describe the part; `size` is `nbytes` in words."""
        each = f" in each of {self.calls:,} calls of `{self.layer}`" if self.calls > 1 else f" in `{self.layer}`"
        at = f", sent at {self.where}" if self.where else ""
        return f"Its largest part is {self.what}{each} ({self.kind}, {size}{at})."


def graph_bytes(message: Mapping[str, Any]) -> int:
    """Bytes of the packed graph in a client's message `update-graph` (in `graph_frames` until distributed 2024.8)."""
    frames = [frame for value in message.values() for frame in getattr(value, "frames", ())]
    return sum(memoryview(frame).nbytes for frame in (*frames, *message.get("graph_frames", ())))
