"""One trial as the causes see it: what was asked for, what happened, and the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats
from scalescope.analysis.events import Tables, told
from scalescope.analysis.measure import Stage, stages_of
from scalescope.analysis.worker_time import divide
from scalescope.diagnosis.cause import NOTEWORTHY, Cause, Premise, Term, severity_of
from scalescope.errors import CaptureError
from scalescope.model.emulation_limit import EmulationLimit
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.metrics import Metrics
from scalescope.model.records import ONCE, OTHER_CLUSTER, SENDING
from scalescope.model.standstill import STANDSTILL, Standstill
from scalescope.model.trial import Trial

T = TypeVar("T")
P = ParamSpec("P")
PREFECT_CLIENT = "PrefectDaskClient"  # start of the client id that prefect-dask uses


@dataclass(frozen=True)
class Observation:
    """One trial and its records; what several causes need is computed once."""

    trial: Trial  # point, state, reason, facts, and metrics if there are any
    tables: Tables  # records of the trial (`scalescope.model.records`); a table may be missing if the driver died
    attempts: Attempts | None  # the recorded attempts; None when nothing can be measured
    # Results of functions that are decorated with `once`
    computed: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, trial: Trial, tables: Tables) -> Observation:
        try:
            attempts = Attempts.read(tables)
        except CaptureError:  # reported where the trial is measured, which makes it invalid
            attempts = None
        return cls(trial, tables, attempts)

    @property
    def threads(self) -> int:
        return self.trial.point.threads

    @property
    def measured(self) -> Attempts:
        """Recorded attempts; `ValueError` if there are none: only causes with `without_attempts` see such trials."""
        if self.attempts is None:
            raise ValueError(f"trial {self.trial.key} has no recorded attempts")
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
        """Standstill in which the trial was stopped; None if something moved, or the trial ended by itself."""
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
        """`lost_s` thread-seconds as a share of the worker time; 0 where nothing was measured."""
        whole = 0.0 if self.attempts is None else self.threads * self.attempts.elapsed
        return lost_s / whole if whole > 0 else 0.0

    def saved_s(self, lost_s: float, parts: Collection[str]) -> float:
        """Seconds by which the call would be shorter without `lost_s` thread-seconds.

        Assumes that all threads share idle time, and that time lost in tasks lengthens all tasks in proportion.
        """
        busy = self.seconds("busy", "lost")
        if self.attempts is not None and parts and set(parts) <= {"busy", "lost"} and busy > 0:
            return self.attempts.here_s * min(lost_s / busy, 1.0)
        return lost_s / self.threads

    @cached_property
    def client_spans(self) -> tuple[Floats, Floats]:
        """Begin and end of each row of the table `client`, in seconds since the first task was known."""
        begin = self.numbers("client", "time") - self.measured.epoch
        return begin, begin + self.numbers("client", "seconds")

    @cached_property
    def client_calls(self) -> tuple[str, ...]:
        """The function that the client called in each row of the table `client`, as `submit`."""
        return tuple(str(what).rpartition(".")[2] for what in self.column("client", "what"))

    @cached_property
    def client_sends(self) -> Bools:
        """Whether the client made a call that sends a graph, for each row of the table `client`."""
        return np.array([call in SENDING for call in self.client_calls], dtype=bool)

    @cached_property
    def client_elsewhere(self) -> Bools:
        """Whether the client waited for another cluster, for each row of the table `client`."""
        return np.array([what == OTHER_CLUSTER for what in self.column("client", "what")], dtype=bool)

    @cached_property
    def client_waits(self) -> Bools:
        """Whether the client waited for this cluster, for each row of the table `client`."""
        return (self.numbers("client", "waits") > 0) & ~self.client_elsewhere

    @cached_property
    def client_s(self) -> float:
        """Seconds of the client without waits, imports, flow starts and calls that send graphs; 0 if not recorded."""
        calls = zip(self.column("client", "what"), self.client_calls, self.column("client", "waits"), strict=True)
        own = np.array([what not in ONCE and call not in SENDING and not waits for what, call, waits in calls], bool)
        return float(self.numbers("client", "seconds")[own].sum())

    @cached_property
    def emulated(self) -> bool:
        """Whether the host kept up with the cluster that it emulated; if not, the trial's times predict no gain."""
        limit = (self.trial.facts.get("cluster") or {}).get("limit")
        if not limit or self.metrics is None:
            return True
        return not EmulationLimit.from_mapping(limit).beyond(self.metrics.tasks, self.metrics.makespan_s)

    @cached_property
    def host_load(self) -> Mapping[str, Any] | None:
        """The load of the driver's host, if all workers run on it in real time; else None, also if it is not known."""
        facts = self.trial.facts.get("host") or {}
        here = {"127.0.0.1", "localhost", "::1", facts.get("hostname")}
        workers = zip(self.column("workers", "worker"), self.column("workers", "host"), strict=True)
        if self.trial.virtual or any(name not in here and not worker.startswith("inproc:") for worker, name in workers):
            return None
        return facts.get("load") or None

    @cached_property
    def computing_s(self) -> float:
        """Seconds that the CPU time of all tasks takes on all cores of the host together; 0 if not recorded."""
        if self.metrics is None or self.host_load is None:
            return 0.0
        return (self.metrics.busy_time_s or {}).get("computing", 0.0) / int(self.host_load["cpus"])

    def noteworthy(self, *parts: str) -> bool:
        return self.share(*parts) >= NOTEWORTHY

    @property
    def made_at(self) -> Place | None:
        """The line of the user's code that made the cluster."""
        return Place.of(str((self.trial.facts.get("cluster") or {}).get("made_at", "")))

    def place(self, worker: str) -> str:
        """Place of a worker, as far as the cluster says: ` on node n1 (g2-standard-8, zone a, spot)`; else empty."""
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


@dataclass(frozen=True)
class Remedy:
    """Advice on a finding, and the effect that the records promise."""

    text: str  # the option or line to change, without a full stop
    change: Mapping[str, Scalar] = field(default_factory=dict)  # values of axes that apply the remedy
    saved_s: float | None = None  # seconds of the call that the remedy saves; by default computed from `lost_s`
    shorter_s: float | None = None  # thread-seconds by which the remedy makes tasks shorter; by default `lost_s`
    remains_s: float = 0.0  # seconds of the call that the remedy itself costs, such as sending data once
    changes: Collection[Term] | None = None  # terms of the bound on the time; by default those of the cause
    premise: Premise[Observation] | None = None  # further condition, besides the premise of the cause
    otherwise: Remedy | None = None  # the remedy if a premise does not hold; None if none is known

    @classmethod
    def options(cls, observation: Observation, *given: Remedy) -> Remedy:
        """The remedies whose premises hold, as one text of alternatives."""
        return cls(", or ".join(each.text for each in given if _holds(each, observation)))

    def changes_nothing(self, observation: Observation) -> bool:
        values = observation.trial.point.values
        return bool(self.change) and all(values.get(name) == value for name, value in self.change.items())


@dataclass(eq=False, kw_only=True)
class TrialCause(Cause[Observation]):
    """A cause that the records of a single trial can show."""

    without_attempts: bool = False  # True if trials without recorded attempts can show it, too
    # The remedy in a Prefect flow, if it differs there; `{task}` is the prefix of most tasks
    in_a_flow: str = ""

    def look(self, observation: Observation) -> Finding | None:
        return self.find(observation) if self.without_attempts or observation.attempts is not None else None

    def finding(
        self,
        observation: Observation,
        lost_s: float,  # thread-seconds
        summary: str,  # one whole sentence
        remedy: Remedy | str,
        *evidence: Evidence,
        confidence: float,
        severity: Severity | None = None,  # default: by the share of worker time lost
        link: str = "",  # default: the link of the cause
        place: Place | None = None,  # line of the user's code
    ) -> Finding:
        severity, metrics, gain = severity or severity_of(observation.share_of(lost_s)), observation.metrics, None
        act = self._that_helps(observation, Remedy(remedy) if isinstance(remedy, str) else remedy)
        if act.text and metrics is not None and observation.emulated and severity is not Severity.INFO:
            gain = self.gain(
                metrics,
                observation.threads,
                observation.saved_s(lost_s, self.parts) if act.saved_s is None else act.saved_s,
                shorter_s=lost_s if act.shorter_s is None else act.shorter_s,
                client_s=observation.client_s,
                changes=act.changes,
                least_s=observation.computing_s,
                remains_s=act.remains_s,
                change=act.change,
            )
        text, link = act.text, link or self.link
        if text and self.in_a_flow and observation.by_prefect and severity is not Severity.INFO:
            text = self.in_a_flow.replace("{task}", _usual_task(observation))
        return Finding(self.code, severity, summary, text, evidence, confidence, (), lost_s, link, gain, place)

    def _that_helps(self, observation: Observation, remedy: Remedy) -> Remedy:
        helps = self.helps(observation)
        while not helps or remedy.changes_nothing(observation) or not _holds(remedy, observation):
            if remedy.otherwise is None:
                return Remedy("")
            helps, remedy = True, remedy.otherwise
        return remedy

    def standing(
        self,
        observation: Observation,
        summary: str,
        remedy: str,
        *evidence: Evidence,
        confidence: float,
        link: str = "",
    ) -> Finding:
        """A finding about a trial that stood still: all of its time is lost."""
        left = observation.standstill.left if observation.standstill else 0
        return self.finding(
            observation,
            observation.threads * observation.trial.real_s,
            f"The trial stood still: {summary}",
            remedy,
            *evidence,
            Evidence("tasks that had not ended", left, "facts standstill"),
            confidence=confidence,
            severity=Severity.HIGH,
            link=link,
        )


def _holds(remedy: Remedy, observation: Observation) -> bool:
    return remedy.premise is None or remedy.premise.holds(observation)


def _usual_task(observation: Observation) -> str:
    names = observation.measured.prefix if observation.attempts else observation.column("tasks", "prefix")
    return Counter(names).most_common(1)[0][0] if len(names) else "task"


def once(compute: Callable[Concatenate[Observation, P], T]) -> Callable[Concatenate[Observation, P], T]:
    """Compute a result once for each trial (and further arguments): several causes look at it."""

    @wraps(compute)
    def computed(observation: Observation, /, *given: P.args, **named: P.kwargs) -> T:
        key = (compute, given, tuple(sorted(named.items())))
        if key not in observation.computed:
            observation.computed[key] = compute(observation, *given, **named)
        found: T = observation.computed[key]
        return found

    return computed
