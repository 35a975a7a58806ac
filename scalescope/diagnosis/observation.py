"""One trial as the causes see it: what was asked for, what became of it, and its records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scalescope.analysis.attempts import Attempts, Tables
from scalescope.analysis.measure import Stage, stages_of
from scalescope.analysis.worker_time import WorkerTime, divide
from scalescope.errors import CaptureError
from scalescope.model.metrics import Metrics
from scalescope.model.trial import Trial


@dataclass(frozen=True)
class Observation:
    """One trial and its records; what several causes need is computed once.

    Attributes:
        trial: What was asked for and what became of it: state, reason, facts, and metrics where there are any.
        tables: Its records (`scalescope.model.records`); a table may be missing when the driver died.
        attempts: The recorded attempts; None when nothing can be measured.
    """

    trial: Trial
    tables: Tables
    attempts: Attempts | None

    @classmethod
    def of(cls, trial: Trial, tables: Tables) -> Observation:
        """Read the records of a trial, as far as there are any."""
        try:
            attempts = Attempts.read(tables)
        except CaptureError:  # whoever measures says so, and the trial is not valid
            attempts = None
        return cls(trial, tables, attempts)

    @property
    def threads(self) -> int:
        """P, the threads asked for."""
        return self.trial.point.threads

    @property
    def metrics(self) -> Metrics | None:
        """What the trial measured."""
        return self.trial.metrics

    @cached_property
    def worker_time(self) -> WorkerTime | None:
        """P × makespan by worker and part."""
        return None if self.attempts is None else divide(self.attempts, threads=self.threads)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Task groups in the order in which they began."""
        return () if self.attempts is None else stages_of(self.attempts)

    def seconds(self, *parts: str) -> float:
        """Thread-seconds in these parts of worker time."""
        total = {} if self.worker_time is None else self.worker_time.total()
        return sum(total.get(part, 0.0) for part in parts)

    def share(self, *parts: str) -> float:
        """The share of worker time in these parts, from 0 to 1."""
        whole = 0.0 if self.attempts is None else self.threads * self.attempts.makespan
        return self.seconds(*parts) / whole if whole > 0 else 0.0

    def column(self, table: str, name: str) -> Sequence[Any]:
        """A column of a table; empty where it was not recorded."""
        column: Sequence[Any] = self.tables.get(table, {}).get(name, ())
        return column

    def events(self, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
        """Time and message of the structured events of one topic whose message is an object."""
        rows = zip(
            self.column("events", "topic"),
            self.column("events", "time"),
            self.column("events", "message"),
            strict=True,
        )
        found = [(float(when), json.loads(message)) for name, when, message in rows if name == topic]
        return [(when, message) for when, message in found if isinstance(message, dict)]
