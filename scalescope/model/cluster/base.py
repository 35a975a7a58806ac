"""What all specifications of clusters have in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

OPEN_LIMIT_S = 120.0
"""Seconds in which a scheduler on this machine has started, however busy that is."""


@dataclass(frozen=True)
class ClusterSpec:
    """Base of all cluster specifications; `kind` names the implementation."""

    kind: ClassVar[str] = ""
    max_workers: ClassVar[int] = 100_000
    real_time: ClassVar[bool] = True

    @property
    def arrival_limit_s(self) -> float | None:
        """Seconds after which the cluster itself gives up waiting for workers; None where it has no such limit."""
        limit: float | None = getattr(self, "start_timeout_s", None)
        return limit

    @property
    def open_limit_s(self) -> float:
        """Seconds that opening may take, before any point asks for workers."""
        return max(OPEN_LIMIT_S, getattr(self, "start_timeout_s", 0.0))

    def check_size(self, workers: int, threads_per_worker: int) -> None:
        """Refuse a point that this cluster can never have.

        Raises:
            InvalidField: It cannot.
        """

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it: `kind` and the fields."""
        given = asdict(self).items()
        return {"kind": self.kind} | {name: list(value) if isinstance(value, tuple) else value for name, value in given}
