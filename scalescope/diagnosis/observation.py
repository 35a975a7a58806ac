"""One trial as its causes see it: what was asked for, what became of it, and its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats
from scalescope.analysis.events import Tables, told
from scalescope.analysis.measure import Stage, stages_of
from scalescope.analysis.worker_time import divide
from scalescope.diagnosis.cause import NOTEWORTHY, Cause, Term, severity_of
from scalescope.errors import CaptureError
from scalescope.model.emulation_limit import EmulationLimit
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.metrics import Metrics
from scalescope.model.records import ONCE, OTHER_CLUSTER, SENDING
from scalescope.model.standstill import STANDSTILL, Standstill
from scalescope.model.trial import Trial

T = TypeVar("T")
PREFECT_CLIENT = "PrefectDaskClient"  # begins the id of the client of prefect-dask


@dataclass(frozen=True)
class Observation:
    """One trial and its records; what several causes need is computed once."""

    trial: Trial  # what was asked for and what became of it: state, reason, facts, and metrics where there are any
    tables: Tables  # its records (`scalescope.model.records`); a table may be missing when the driver died
    attempts: Attempts | None  # the recorded attempts; None when nothing can be measured

    @classmethod
    def of(cls, trial: Trial, tables: Tables) -> Observation:
        try:
            attempts = Attempts.read(tables)
        except CaptureError:  # whoever measures says so, and the trial is not valid
            attempts = None
        return cls(trial, tables, attempts)

    @property
    def threads(self) -> int:
        return self.trial.point.threads

    @property
    def measured(self) -> Attempts:
        """The attempts of a trial that has some; for causes that are only asked where there are any."""
        if self.attempts is None:
            raise ValueError(f"trial {self.trial.key} has no attempts")
        return self.attempts

    @property
    def metrics(self) -> Metrics | None:
        return self.trial.metrics

    @cached_property
    def by_prefect(self) -> bool:
        """Whether the tasks are those of a Prefect flow: its Dask client sent graphs."""
        return any(str(client).startswith(PREFECT_CLIENT) for client in self.column("graphs", "client"))

    @cached_property
    def standstill(self) -> Standstill | None:
        """What stood still when the trial was stopped; None where something moved, or it ended by itself."""
        fact = self.trial.facts.get(STANDSTILL)
        found = Standstill.from_mapping(fact) if fact else None
        return found if found and found.lasts else None

    @cached_property
    def worker_time_s(self) -> Mapping[str, float]:
        """Thread-seconds in each part of the worker time; empty where nothing can be measured."""
        if self.attempts is None:
            return {}
        if self.metrics is not None:
            return self.metrics.worker_time_s
        return divide(self.attempts, threads=self.threads).total()

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return () if self.attempts is None else stages_of(self.attempts)

    def seconds(self, *parts: str) -> float:
        return sum(self.worker_time_s.get(part, 0.0) for part in parts)

    def share(self, *parts: str) -> float:
        """The share of worker time in these parts, from 0 to 1."""
        return self.share_of(self.seconds(*parts))

    def share_of(self, lost_s: float) -> float:
        """The share of worker time in so many thread-seconds; 0 where nothing was measured."""
        whole = 0.0 if self.attempts is None else self.threads * self.attempts.elapsed
        return lost_s / whole if whole > 0 else 0.0

    def saved_s(self, lost_s: float, parts: Collection[str]) -> float:
        """Seconds of the call that these thread-seconds cost.

        Idle threads are taken to be shared by all threads; time lost in tasks makes all tasks shorter in proportion.
        """
        busy = self.seconds("busy", "lost")
        if self.attempts is not None and parts and set(parts) <= {"busy", "lost"} and busy > 0:
            return self.attempts.here_s * min(lost_s / busy, 1.0)
        return lost_s / self.threads

    @cached_property
    def client_elsewhere(self) -> Bools:
        """In which rows of the table `client` it waited for another cluster."""
        return np.array([what == OTHER_CLUSTER for what in self.column("client", "what")], dtype=bool)

    @cached_property
    def client_waits(self) -> Bools:
        """In which rows of the table `client` it waited for this cluster."""
        return (self.numbers("client", "waits") > 0) & ~self.client_elsewhere

    @cached_property
    def client_s(self) -> float:
        """Seconds in which the client ran its own code, without what is done once; 0 where that was not recorded."""
        what, waits = self.column("client", "what"), self.numbers("client", "waits") > 0
        own = [call not in ONCE and call.rpartition(".")[2] not in SENDING for call in what]
        return float(self.numbers("client", "seconds")[own & ~waits].sum()) if len(what) else 0.0

    @cached_property
    def emulated(self) -> bool:
        """Whether the host kept up with what it emulated; if not, no time is predicted from the trial's."""
        limit = (self.trial.facts.get("cluster") or {}).get("limit")
        if not limit or self.metrics is None:
            return True
        return not EmulationLimit.from_mapping(limit).beyond(self.metrics.tasks, self.metrics.makespan_s)

    def noteworthy(self, *parts: str) -> bool:
        return self.share(*parts) >= NOTEWORTHY

    def place(self, worker: str) -> str:
        """Where a worker ran, as far as the cluster says: ` on node n1 (g2-standard-8, zone a, spot)`; else empty."""
        pods = self.trial.facts.get("cluster", {}).get("pods", ())
        found = next((each for each in pods if each.get("worker") == worker and each.get("node")), None)
        if found is None:
            return ""
        more = [found[name] for name in ("instance_type", "zone") if name in found] + ["spot"] * bool(found.get("spot"))
        return f" on node {found['node']}" + (f" ({', '.join(more)})" if more else "")

    def column(self, table: str, name: str) -> Sequence[Any]:
        column: Sequence[Any] = self.tables.get(table, {}).get(name, ())
        return column

    def numbers(self, table: str, name: str) -> Floats:
        """A column of numbers, such as seconds or bytes; empty where it was not recorded."""
        return np.asarray(self.column(table, name), dtype=np.float64)

    def events(self, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
        """Time and message of the structured events of one topic whose message is an object."""
        return told(self.tables.get("events", {}), topic)


@dataclass(eq=False, kw_only=True)
class TrialCause(Cause[Observation]):
    """A cause that the records of a single trial can show."""

    without_attempts: bool = False  # whether it is looked for in trials without recorded attempts, too
    # The remedy in a Prefect flow, where it is another one; `{task}` is the prefix of most tasks
    in_a_flow: str = ""

    def look(self, observation: Observation) -> Finding | None:
        return self.find(observation) if self.without_attempts or observation.attempts is not None else None

    def finding(
        self,
        observation: Observation,
        lost_s: float,
        summary: str,  # one whole sentence
        remedy: str,  # the option or line to change, without a full stop
        *evidence: Evidence,
        confidence: float,
        severity: Severity | None = None,
        link: str = "",
        change: Mapping[str, Scalar] = MappingProxyType({}),
        saved_s: float | None = None,
        shorter_s: float | None = None,
        changes: Collection[Term] | None = None,
    ) -> Finding:
        """A finding that lost so many thread-seconds; `change` names values of axes that apply the remedy.

        `saved_s` are the seconds of the call that the remedy saves, `shorter_s` thread-seconds by which tasks become
        shorter; both follow from `lost_s` unless given. `changes` replaces those of the cause.
        """
        severity, metrics, gain = severity or severity_of(observation.share_of(lost_s)), observation.metrics, None
        if self.in_a_flow and observation.by_prefect:
            remedy = self.in_a_flow.replace("{task}", _usual_task(observation))
        if metrics is not None and observation.emulated and severity is not Severity.INFO:
            saved_s = observation.saved_s(lost_s, self.parts) if saved_s is None else saved_s
            shorter_s = lost_s if shorter_s is None else shorter_s
            terms = {"shorter_s": shorter_s, "client_s": observation.client_s}
            gain = self.gain(metrics, observation.threads, saved_s, changes=changes, change=change, **terms)
        return Finding(
            self.code, severity, summary, remedy, evidence, confidence, lost_s=lost_s, link=link or self.link, gain=gain
        )


def _usual_task(observation: Observation) -> str:
    names = observation.measured.prefix if observation.attempts else observation.column("tasks", "prefix")
    return Counter(names).most_common(1)[0][0] if len(names) else "task"


def once(compute: Callable[[Observation], T]) -> Callable[[Observation], T]:
    """Compute something for each trial once, as `functools.cached_property` does: several causes look at it."""
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def computed(observation: Observation) -> T:
        kept: dict[str, Any] = vars(observation)
        if name not in kept:
            kept[name] = compute(observation)
        value: T = kept[name]
        return value

    return computed
