"""At which value of an axis does a metric change regime?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.fields import Scalar
from scalescope.model.study import StudyKind
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER
from scalescope.model.trial import Trial
from scalescope.run.request import Ask, Request
from scalescope.store.store import SweepRun
from scalescope.studies import threshold
from scalescope.studies.inquiry import Answer, Base, Inquiry, axis, base, because, is_noisy, timed, turn
from scalescope.studies.symptom import Quantity, quantity

METRIC = "tasks"
MAX_POINTS, MAX_REPEATS, MIN_JUMP = 40, 5, 0.05


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> Inquiry:
    """The study that parameters of the flow `find_threshold` ask for; nothing is started.

    Raises:
        ScalescopeError: The first thing that is wrong.
    """
    design = {name: given[name] for name in ("metric", "max_points", "max_repeats", "min_jump") if name in given}
    axes = {name: axis(name, values) for name, values in fields.mapping("axes", given.get("axes", {})).items()}
    return check(base(given, store, records), axes, **design)


def check(
    shared: Base,
    axes: Mapping[str, list[Scalar]],
    *,
    metric: object = METRIC,
    max_points: object = MAX_POINTS,
    max_repeats: object = MAX_REPEATS,
    min_jump: object = MIN_JUMP,
) -> Inquiry:
    """Check a question completely; nothing is started.

    Args:
        shared: What all trials share.
        axes: The axis that is searched, with its range or all its values; others may have one value.
        metric: A number that is measured.
        max_points: Different values to measure at most.
        max_repeats: Trials of one value at most, where trials differ.
        min_jump: Smallest jump worth naming, as a share.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    name, low, high, step, fixed = _searched(axes)
    given = {other: value for other, value in shared.values.items() if other != name}
    if name == ITEMS_PER_WORKER:
        given.pop(ITEMS, None)
    shared = replace(shared, values={**given, **fixed})
    number = quantity(fields.text("metric", metric))
    request = shared.request([{name: low}, {name: high}])
    question = threshold.Question(
        low,
        high,
        step,
        metric=number.text,
        axis=name,
        max_points=fields.integer("max_points", max_points, minimum=2, maximum=10_000),
        max_repeats=fields.integer("max_repeats", max_repeats, minimum=1, maximum=1000),
        min_jump=fields.number("min_jump", min_jump, minimum=0.001, maximum=0.999),
        noisy=is_noisy(request.sweep, [planned.point for planned in request.plan]),
    )
    search = _Search(question, number, shared, request)
    return Inquiry(
        StudyKind.THRESHOLD,
        {**shared.to_mapping(), **question.to_mapping()},
        (replace(request, grow=timed(search.grow, shared.minutes)),),
        search.answer,
        shared.follows,
    )


def _searched(axes: Mapping[str, list[Scalar]]) -> tuple[str, float, float, float, dict[str, Scalar]]:
    """The axis with several values, its ends and its step, and the values of the others."""
    several = [name for name, values in axes.items() if len(values) > 1]
    if len(several) != 1:
        raise InvalidField(
            "axes", dict(axes), "exactly one axis with a range, such as items=50..400; others with one value each"
        )
    [name] = several
    numbers = [_number(f"axes.{name}[{i}]", value) for i, value in enumerate(axes[name])]
    step = numbers[1] - numbers[0]
    if step <= 0 or any(abs(b - a - step) > 1e-9 * abs(step) for a, b in pairwise(numbers)):
        raise InvalidField(f"axes.{name}", axes[name], "values that go up in equal steps, such as 50..400 or 0..100:5")
    fixed = {other: values[0] for other, values in axes.items() if other != name and values}
    return name, numbers[0], numbers[-1], step, fixed


def _number(where: str, value: object) -> float | int:
    """A number; a whole one stays whole."""
    number = fields.number(where, value, minimum=-1e15)
    return int(number) if isinstance(value, int) else number


class _Search:
    """The search along one axis, as growth of a sweep."""

    def __init__(self, question: threshold.Question, number: Quantity, shared: Base, request: Request) -> None:
        self._question = question
        self._number = number
        self._shared = shared
        self._request = request
        self._values = {self._point(value).id: value for value in (question.low, question.high)}

    def _point(self, value: float) -> Any:
        sweep, workload = self._request.sweep, self._request.workload
        return sweep.point({**self._shared.values, self._question.axis: value}, workload)

    def grow(self, done: Sequence[Trial]) -> list[Ask]:
        """What to measure next."""
        asked: dict[str, int] = {}
        asks = []
        for value in threshold.further(self._question, self._readings(done)):
            point = self._point(value)
            self._values[point.id] = value
            asks.append(Ask(point, turn(done, point, asked)))
            asked[point.id] = asked.get(point.id, 0) + 1
        return asks

    def answer(self, runs: Sequence[SweepRun]) -> Answer:
        """Where it jumps."""
        found = threshold.judge(self._question, self._readings(runs[0].trials))
        return Answer(found.line + because(runs[0].trials), found.to_mapping(), alarm=not found.resolved)

    def _readings(self, done: Sequence[Trial]) -> list[threshold.Reading]:
        return [
            threshold.Reading(self._values[trial.point.id], self._number.of(trial))
            for trial in done
            if not trial.warmup
        ]
