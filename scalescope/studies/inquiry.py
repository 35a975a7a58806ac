"""What all studies have in common: a base that was asked for, sweeps that grow, and an answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalescope.analysis.summary import plural, summarise
from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.study import StudyKind
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.report.rows import worst_point
from scalescope.run import request, syntax
from scalescope.run.request import Growth, Request
from scalescope.run.trials import UNAVAILABLE
from scalescope.store.store import Store, SweepRun

MINUTES = 60.0
"""Budget of a study unless another is given."""


@dataclass(frozen=True)
class Answer:
    """What came of a study.

    Attributes:
        line: It in one sentence.
        result: All of it, as JSON carries it.
        alarm: Whether it is bad news, or there is none.
    """

    line: str
    result: Mapping[str, Any]
    alarm: bool


@dataclass(frozen=True)
class Inquiry:
    """A study that may be started: everything in it has been checked.

    Attributes:
        kind: What is asked.
        question: All of it, as JSON carries it: a study is continued when its question is the same.
        requests: The sweeps to run, each with its growth.
        answer: Judges the runs that came of them, in the same order.
        follows: Id of the run or study that led to it; may be empty.
    """

    kind: StudyKind
    question: Mapping[str, Any]
    requests: tuple[Request, ...]
    answer: Callable[[Sequence[SweepRun]], Answer]
    follows: str = ""


@dataclass(frozen=True)
class Base:
    """What all trials of a study share.

    Attributes:
        sweep: Fields of a sweep, but for axes and points: workload, params, cluster, environment, seed, timeout.
        values: Values of axes that hold for all trials, by name.
        store: Address of the store.
        records: Address of the raw records.
        follows: Id of the run that the rest was taken from; may be empty.
        minutes: After which no further trial is begun.
    """

    sweep: Mapping[str, Any]
    values: Mapping[str, Scalar] = field(default_factory=dict)
    store: str = field(default="", repr=False)
    records: str = ""
    follows: str = ""
    minutes: float = MINUTES

    @property
    def workload(self) -> str:
        """Reference of the workload.

        Raises:
            InvalidField: None is given.
        """
        if not self.sweep.get("workload"):
            raise InvalidField(
                "workload", None, "the name of a workload", next_step="`scalescope workloads` lists them"
            )
        return fields.text("workload", self.sweep["workload"])

    def request(self, points: Sequence[Mapping[str, Scalar]], *, repeats: int = 1, **changed: Any) -> Request:
        """A checked sweep over these points, each completed by the values that all share; it does not grow yet.

        Raises:
            InvalidField: Something in it is not allowed.
        """
        self.workload  # noqa: B018 - raises
        given = [{**self.values, **point} for point in points]
        sweep = {**self.sweep, **changed, "points": given, "repeats": repeats}
        return request.check({**sweep, "store": self.store}, records=self.records)

    def to_mapping(self) -> dict[str, Any]:
        """What of it belongs to the question, as JSON carries it."""
        return {**self.sweep, "values": dict(self.values)}


def base(given: Mapping[str, Any], store: str = "", records: str = "") -> Base:
    """Check what all trials of a study share; what is not given is taken from a run, at its worst point.

    Args:
        given: Parameters of the study's flow: `workload`, `params`, `cluster`, `environment`, `seed`,
            `trial_timeout_s`; `values` of axes; `run`, a finished one: its id, the beginning of it, or latest;
            `minutes`.
        store: Address of the store.
        records: Address of the raw records.

    Raises:
        InvalidField: A value is not allowed.
        UsageError: There is no such run.
        StoreError: The store refuses.
    """
    values = fields.mapping("values", given.get("values", {}))
    checked = {name: fields.scalar(f"values.{name}", value) for name, value in values.items()}
    sweep = {name: given[name] for name in _OWN if given.get(name) not in (None, "", {})}
    follows = ""
    if run := given.get("run"):
        with Store.open(store, records) as opened:
            found = opened.run(fields.text("run", run))
        taken = found.sweep.to_mapping()
        if sweep.get("workload", taken["workload"]) == taken["workload"]:
            checked = {
                **_worst_values(found, {*checked, *fields.mapping("params", sweep.get("params", {}))}),
                **checked,
            }
            sweep = {**{name: taken[name] for name in _TAKEN if name in taken}, **sweep}
        follows = found.id
    minutes = fields.number("minutes", given.get("minutes", MINUTES), minimum=0.01, maximum=7 * 24 * 60)
    return Base(sweep, checked, store, records, follows, minutes)


_OWN = ("workload", "params", "cluster", "environment", "seed", "trial_timeout_s")
_TAKEN = ("workload", "cluster", "environment", "seed", "trial_timeout_s")


def _worst_values(run: SweepRun, given: set[str]) -> dict[str, Scalar]:
    """The values of the point that a run has most to say of, but for those that are given."""
    worst = worst_point(summarise(run.trials), run.verdict)
    if worst is None:
        raise InvalidField("run", run.id, "a run with valid trials", next_step="give --workload instead")
    if ITEMS_PER_WORKER in given:
        given = {*given, ITEMS}
    return {name: value for name, value in worst.point.values.items() if name not in given}


def because(trials: Sequence[Trial]) -> str:
    """Why trials are not data points, as a sentence to add to an answer; empty where all are.

    The most frequent reason stands for all.
    """
    spoilt = [trial for trial in trials if trial.state is not TrialState.VALID and not trial.facts.get(UNAVAILABLE)]
    if not spoilt:
        return ""
    [(reason, _)] = Counter(trial.reason.partition("\n")[0] for trial in spoilt).most_common(1)
    first = next(trial for trial in spoilt if trial.reason.startswith(reason))
    environment = Environment.parse(first.point.environment)
    where = "" if environment.present else f" ({environment.label})"
    return f" {plural(len(spoilt), 'trial')} had no result{where}: {reason.rstrip('.')}."


def axis(name: str, values: object) -> list[Scalar]:
    """The values of an axis: one, a list, or a range such as 50..400 or 50..400:10.

    Raises:
        InvalidField: They are none of these.
    """
    if isinstance(values, str):
        return syntax.axis(name, values)
    if isinstance(values, list | tuple):
        return [fields.scalar(f"axes.{name}[{i}]", value) for i, value in enumerate(values)]
    return [fields.scalar(f"axes.{name}", values)]


def deadline(minutes: float) -> Callable[[], bool]:
    """Whether so many minutes have passed since now."""
    end = time.monotonic() + 60 * minutes
    return lambda: time.monotonic() >= end


def timed(grow: Growth, minutes: float) -> Growth:
    """Growth that ends when so many minutes, from now on, have passed."""
    over = deadline(minutes)
    return lambda done: () if over() else grow(done)


def turn(done: Sequence[Trial], point: Point, asked: Mapping[str, int]) -> int:
    """Which trial of a point comes next, from 0."""
    tried = [trial.repeat for trial in done if trial.point.id == point.id and not trial.warmup]
    return len(tried) + asked.get(point.id, 0)


def is_noisy(sweep: Sweep, points: Sequence[Point]) -> bool:
    """Whether two trials of a point may differ."""
    return any(cluster.real_time for cluster in sweep.clusters(points))
