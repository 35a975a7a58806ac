"""Code that all studies share: the settings of their trials, sweeps that grow, and answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope.analysis.summary import summarise, worst_point
from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.model.words import plural
from scalescope.run import request
from scalescope.run.growth import Growth
from scalescope.run.request import RunRequest
from scalescope.run.trials import UNAVAILABLE
from scalescope.store.store import Store, SweepRun
from scalescope.studies import others_code
from scalescope.studies.parameters import StudyParameters


@dataclass(frozen=True)
class StudyAnswer:
    """The answer in a line, the full result for JSON, and `alarm`: True for bad news or no answer."""

    line: str
    result: Mapping[str, Any]
    alarm: bool


# Makes the next sweep from the earlier runs of the study; None: no sweep. May write into the folder (last argument)
RequestAfter = Callable[[Sequence[SweepRun], Store, str], RunRequest | None]


@dataclass(frozen=True)
class PlannedStudy:
    """A study whose parameters have all been checked, ready to start."""

    kind: str
    question: Mapping[str, Any]  # JSON; asking the same question again continues the study
    requests: tuple[RunRequest | RequestAfter, ...]  # sweeps to run, or functions that make them from earlier runs
    answer: Callable[[Sequence[SweepRun]], StudyAnswer]  # makes the answer from the runs of `requests`, in their order
    follows: str = ""  # id of the run or study that led to this study
    # returns a preliminary answer before the last sweep; an empty text is none
    so_far: Callable[[Sequence[SweepRun]], str] = lambda runs: ""


@dataclass(frozen=True)
class SharedSettings:
    """Settings that all trials of a study share."""

    sweep: Mapping[str, Any]  # fields of a sweep, except axes and points
    values: Mapping[str, Scalar] = field(default_factory=dict)  # values of axes that hold for all trials
    store: str = field(default="", repr=False)
    records: str = ""
    follows: str = ""  # id of the run that these settings come from; may be empty
    minutes: float = StudyParameters.minutes  # minutes after which no further trial begins

    @property
    def workload(self) -> str:
        if not self.sweep.get("workload"):
            raise InvalidField(
                "workload", None, "the name of a workload", next_step="`scalescope workloads` lists them"
            )
        return fields.text("workload", self.sweep["workload"])

    def request(self, points: Sequence[Mapping[str, Scalar]], *, repeats: int = 1, **changed: Any) -> RunRequest:
        self.workload  # noqa: B018 - raises
        sweep = {**self.sweep, **changed, "points": [{**self.values, **point} for point in points], "repeats": repeats}
        return request.check({**sweep, "store": self.store}, records=self.records)

    def to_mapping(self) -> dict[str, Any]:
        """The settings that belong to the question, as JSON."""
        return {**self.sweep, "values": dict(self.values)}


def shared_settings(
    given: Mapping[str, Any], asked: StudyParameters, store: str = "", records: str = ""
) -> SharedSettings:
    """Settings of all trials; missing ones come from `asked.run` and its worst point, if it ran the same workload."""
    values = {name: fields.scalar(f"values.{name}", value) for name, value in given.get("values", {}).items()}
    sweep = {name: given.get(name, getattr(asked, name, "")) for name in (*_TAKEN, "params")}
    sweep = {name: value for name, value in sweep.items() if value not in ("", {})}
    follows = ""
    if asked.run:
        with Store.open(store, records) as opened:
            found = opened.run(asked.run)
        others_code.check(found, others_code=asked.others_code)
        taken = found.sweep.to_mapping()
        if sweep.get("workload", taken["workload"]) == taken["workload"]:
            others_code.check_can_run_again(found)
            values = {**_worst_values(found, {*values, *asked.params}), **values}
            sweep = {**{name: taken[name] for name in _TAKEN if name in taken}, **sweep}
        follows = found.id
    return SharedSettings(sweep, values, store, records, follows, asked.minutes)


_TAKEN = ("workload", "cluster", "environment", "seed", "trial_timeout_s")


def _worst_values(run: SweepRun, given: set[str]) -> dict[str, Scalar]:
    worst = worst_point(summarise(run.trials), run.verdict)
    if worst is None:
        raise InvalidField("run", run.id, "a run with valid trials", next_step="give a workload instead")
    if ITEMS_PER_WORKER in given:
        given = {*given, ITEMS}
    return {name: value for name, value in worst.point.values.items() if name not in given}


def because(trials: Sequence[Trial]) -> str:
    """The most frequent reason for trials without a result, as a sentence with a leading space; else empty."""
    # without trials whose environment could not be built
    spoilt = [trial for trial in trials if trial.state is not TrialState.VALID and not trial.facts.get(UNAVAILABLE)]
    if not spoilt:
        return ""
    (reason, _), *others = Counter(trial.reason.partition("\n")[0] for trial in spoilt).most_common()
    first = next(trial for trial in spoilt if trial.reason.startswith(reason))
    environment = Environment.parse(first.point.environment)
    where = "" if environment.present else f" ({environment.label})"
    most = "; the most frequent reason" if others else ""
    return f" {plural(len(spoilt), 'trial')} had no result{where}{most}: {reason.rstrip('.')}."


def timed(request: RunRequest, grow: Growth, minutes: float) -> RunRequest:
    """The sweep, growing until `minutes` from now have passed."""
    end = time.monotonic() + 60 * minutes
    return replace(request, grow=lambda done: () if time.monotonic() >= end else grow(done))


def is_noisy(sweep: Sweep, points: Sequence[Point]) -> bool:
    """Whether two trials of a point may differ."""
    return any(cluster.real_time for cluster in sweep.clusters(points))
