"""Checks the parameters of a search for thresholds, and plans its sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model import fields, parameters
from scalescope.model.fields import Scalar
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, Point, axis_values
from scalescope.model.trial import Trial
from scalescope.run.growth import ExtraTrial
from scalescope.run.request import RunRequest
from scalescope.store.store import SweepRun
from scalescope.studies.planning import (
    PlannedStudy,
    SharedSettings,
    StudyAnswer,
    because,
    is_noisy,
    shared_settings,
    timed,
)
from scalescope.studies.symptom import Quantity, quantity
from scalescope.studies.threshold.judge import judge
from scalescope.studies.threshold.parameters import ThresholdParameters
from scalescope.studies.threshold.question import ThresholdQuestion, ThresholdReading
from scalescope.studies.threshold.search import further


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    asked = parameters.check(ThresholdParameters, given)
    axes = {name: axis_values(name, values) for name, values in asked.axes.items()}
    shared = shared_settings(given, asked, store, records)
    name, low, high, step, fixed = _searched(axes)
    values = {other: value for other, value in shared.values.items() if other != name}
    if name == ITEMS_PER_WORKER:
        values.pop(ITEMS, None)
    shared = replace(shared, values={**values, **fixed})
    number = quantity(asked.metric)
    request = shared.request([{name: low}, {name: high}])
    question = ThresholdQuestion(
        low,
        high,
        step,
        metric=number.text,
        axis=name,
        max_points=asked.max_points,
        max_repeats=asked.max_repeats,
        min_jump=asked.min_jump,
        noisy=is_noisy(request.sweep, [planned.point for planned in request.plan]),
    )
    search = _ThresholdSearch(question, number, shared, request)
    return PlannedStudy(
        "threshold",
        {**shared.to_mapping(), **question.to_mapping()},
        (timed(request, search.grow, shared.minutes),),
        search.answer,
        shared.follows,
    )


check = ask


def _searched(axes: Mapping[str, Sequence[Scalar]]) -> tuple[str, float, float, float, dict[str, Scalar]]:
    several = [name for name, values in axes.items() if len(values) > 1]
    if len(several) != 1:
        raise InvalidField(
            "axes", dict(axes), "exactly one axis with a range, such as items=50..400; other axes with one value each"
        )
    [name] = several
    numbers = [_number(f"axes.{name}[{i}]", value) for i, value in enumerate(axes[name])]
    step = numbers[1] - numbers[0]
    if step <= 0 or any(abs(b - a - step) > 1e-9 * abs(step) for a, b in pairwise(numbers)):
        raise InvalidField(f"axes.{name}", axes[name], "values that go up in equal steps, such as 50..400 or 0..100:5")
    fixed = {other: values[0] for other, values in axes.items() if other != name and values}
    return name, numbers[0], numbers[-1], step, fixed


def _number(where: str, value: object) -> float | int:
    number = fields.number(where, value, minimum=-1e15)
    return int(number) if isinstance(value, int) else number


class _ThresholdSearch:
    def __init__(
        self, question: ThresholdQuestion, number: Quantity, shared: SharedSettings, request: RunRequest
    ) -> None:
        self._question, self._number, self._shared, self._request = question, number, shared, request
        self._values = {self._point(value).id: value for value in (question.low, question.high)}

    def _point(self, value: float) -> Point:
        sweep, workload = self._request.sweep, self._request.workload
        return sweep.point({**self._shared.values, self._question.axis: value}, workload)

    def grow(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        turns = Counter(trial.point.id for trial in done if not trial.warmup)
        asks = []
        for value in further(self._question, self._readings(done)):
            point = self._point(value)
            self._values[point.id] = value
            asks.append(ExtraTrial(point, turns[point.id]))
            turns[point.id] += 1
        return asks

    def answer(self, runs: Sequence[SweepRun]) -> StudyAnswer:
        found = judge(self._question, self._readings(runs[0].trials))
        return StudyAnswer(found.line + because(runs[0].trials), found.to_mapping(), alarm=not found.resolved)

    def _readings(self, done: Sequence[Trial]) -> list[ThresholdReading]:
        return [
            ThresholdReading(self._values[trial.point.id], self._number.of(trial)) for trial in done if not trial.warmup
        ]
