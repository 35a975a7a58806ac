"""Checks the parameters of a comparison of B with A, and plans its pairs of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalescope.analysis.summary import settings
from scalescope.errors import InvalidField
from scalescope.model import fields, parameters
from scalescope.model.fields import Scalar
from scalescope.model.sweep import CLUSTER, DEFAULT_CLUSTER, ENVIRONMENT, NOTHING, Point
from scalescope.model.trial import Trial
from scalescope.report import run_difference
from scalescope.report.run_difference import RunDifference
from scalescope.run.growth import ExtraTrial
from scalescope.run.request import RunRequest
from scalescope.store.store import Store, SweepRun
from scalescope.studies.comparison.judge import (
    ComparisonDecision,
    ComparisonQuestion,
    PairedComparison,
    family,
    further,
    judge,
    order,
)
from scalescope.studies.comparison.parameters import ComparisonParameters
from scalescope.studies.planning import (
    PlannedStudy,
    RequestAfter,
    SharedSettings,
    StudyAnswer,
    because,
    is_noisy,
    shared_settings,
    timed,
)
from scalescope.studies.symptom import LARGER_IS_BETTER, Quantity, quantity


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    asked = parameters.check(ComparisonParameters, given)
    if not asked.b and not asked.a.keys() & {CLUSTER, ENVIRONMENT}:  # B has defaults for these two axes only
        raise InvalidField(
            "b",
            {},
            "what B changes",
            next_step="add --b NAME=VALUE; to compare A with itself, give --a and --b the same values",
        )
    workloads = [fields.text("workloads", each) for each in asked.workloads]
    shared = shared_settings({**given, "workload": workloads[0] if workloads else ""}, asked, store, records)
    arms = {
        side: {name: fields.scalar(f"{side}.{name}", value) for name, value in values.items()}
        for side, values in (("a", asked.a), ("b", asked.b))
    }
    for name in (CLUSTER, ENVIRONMENT):  # if one side names the axis, the other side gets its default
        if any(name in arm for arm in arms.values()):
            for arm in arms.values():
                arm.setdefault(name, _default(shared, name))
    number = quantity(asked.metric)
    names = workloads or [shared.workload]
    if len(set(names)) < len(names):
        raise InvalidField("workloads", names, "each workload once")
    pairings = []
    for name in names:
        question = ComparisonQuestion(
            metric=number.text,
            name=name if len(names) > 1 else "",
            larger_is_slower=number.text not in LARGER_IS_BETTER,
            smallest_effect=asked.smallest_effect,
            max_pairs=asked.max_pairs,
            alpha=asked.alpha,
        )
        pairings.append(_pairing(question, number, shared, name, arms))
    design: dict[str, Any] = {"metric": number.text}
    for name in ("smallest_effect", "max_pairs"):  # as given, so that the same question has the same digest
        design[name] = given.get(name, getattr(asked, name))
    if asked.alpha != ComparisonParameters.alpha:
        design["alpha"] = asked.alpha
    return PlannedStudy(
        "comparison",
        {**shared.to_mapping(), "workloads": names, **arms, **design},
        (
            *(timed(each.request, each.grow, shared.minutes) for each in pairings),
            *(each.after(number, shared.minutes) for number, each in enumerate(pairings) if each.split),
        ),
        lambda runs: _answer(pairings, runs),
        shared.follows,
    )


check = ask

# On a virtual clock, all tasks of a side run in one process. A difference of at most this share is measured again, with
# a process for each trial: one process ran a loop 2 to 13 % faster than another, only because of where its memory lay.
BY_MEMORY = 0.2


def _default(shared: SharedSettings, name: str) -> Scalar:
    given = shared.sweep.get(name) or {CLUSTER: DEFAULT_CLUSTER, **NOTHING}[name]
    return str(given["kind"]) if isinstance(given, Mapping) else str(given)


@dataclass(frozen=True)
class _Pairing:
    question: ComparisonQuestion
    number: Quantity
    request: RunRequest
    a: Point
    b: Point
    split: bool = False  # True if A runs in one process and B in another, so that memory may explain a difference

    def after(self, number: int, minutes: float) -> RequestAfter:
        """Function that makes the confirming sweep from run `number`; it returns None if `confirmed` does."""

        def request(runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
            again = self.confirmed(runs[number])
            return timed(again.request, again.grow, minutes) if again else None

        return request

    def confirmed(self, run: SweepRun) -> _Pairing | None:
        """New pairs with a process for each trial; None if `run` shows no difference, or one above `BY_MEMORY`."""
        found = judge(self.question, self.pairs(run.trials))
        if not self.split or not found.different or found.size > math.log1p(BY_MEMORY):
            return None
        sweep = replace(self.request.sweep, seed=self.request.sweep.seed + 1)
        return replace(self, request=replace(self.request, sweep=sweep, own_drivers=True), split=False)

    def grow(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        pairs = self.pairs(done)
        return [
            self._ask(side, pair)
            for pair in range(len(pairs), len(pairs) + further(self.question, pairs))
            for side in order(self.request.sweep.seed, pair)
        ]

    def pairs(self, done: Sequence[Trial]) -> list[tuple[float | None, float | None]]:
        known = {(trial.point.id, trial.repeat): trial for trial in done if not trial.warmup}
        pairs: list[tuple[float | None, float | None]] = []
        while True:
            asks = [self._ask(side, len(pairs)) for side in ("a", "b")]
            trials = [known.get((ask.point.id, ask.repeat)) for ask in asks]
            if None in trials:
                return pairs
            left, right = (self.number.of(trial) for trial in trials if trial is not None)
            pairs.append((left, right))

    def _ask(self, side: str, pair: int) -> ExtraTrial:
        point = self.a if side == "a" else self.b
        if self.a.id != self.b.id:
            return ExtraTrial(point, pair)
        return ExtraTrial(point, 2 * pair + (side == "b"))


def _pairing(
    question: ComparisonQuestion,
    number: Quantity,
    shared: SharedSettings,
    workload: str,
    arms: Mapping[str, Mapping[str, Scalar]],
) -> _Pairing:
    request = shared.request(list(arms.values()), workload=workload, warmups=1)
    points = [request.sweep.point({**shared.values, **arms[side]}, request.workload) for side in ("a", "b")]
    same = points[0].id == points[1].id
    if same:
        request = shared.request(list(arms.values()), workload=workload, warmups=1, repeats=2)
    if not is_noisy(request.sweep, points):  # nothing warms up on a virtual clock
        request = shared.request(list(arms.values()), workload=workload, repeats=2 if same else 1)
    left, right = _labels(points[0], points[1])
    split = not is_noisy(request.sweep, points) and len(set(map(request.sweep.driver_of, points))) > 1
    return _Pairing(replace(question, a=left, b=right), number, request, points[0], points[1], split)


def _reason(pairing: _Pairing, found: PairedComparison, run: SweepRun) -> RunDifference | None:
    """Why B is slower or faster; None if B does not differ, or the records do not tell."""
    if not found.different or pairing.a.id == pairing.b.id:
        return None
    sides = [
        [trial for trial in run.trials if trial.counts and trial.point.id == side.id] for side in (pairing.a, pairing.b)
    ]
    return run_difference.explained(sides[0], sides[1], labels=(found.question.a, found.question.b))


def _labels(a: Point, b: Point) -> tuple[str, str]:
    sides = [{"workers": point.workers, "items": point.items, **NOTHING, **settings(point)} for point in (a, b)]
    names = [name for name in dict.fromkeys([*sides[0], *sides[1]]) if sides[0].get(name) != sides[1].get(name)]
    if not names:
        return "A", "B, which is the same,"
    left, right = (", ".join(f"{name}={side.get(name)}" for name in names) for side in sides)
    return f"A ({left})", f"B ({right})"


def _answer(asked: Sequence[_Pairing], every: Sequence[SweepRun]) -> StudyAnswer:
    pairings, runs, further_runs = [*asked], [*every[: len(asked)]], iter(every[len(asked) :])
    for number, run in enumerate(runs):
        if again := asked[number].confirmed(run):
            pairings[number], runs[number] = again, next(further_runs)
    found = [judge(each.question, each.pairs(run.trials)) for each, run in zip(pairings, runs, strict=True)]
    trials = [trial for run in runs for trial in run.trials]
    if len(found) == 1:
        [only] = found
        slower = only.decision is ComparisonDecision.SLOWER
        reason, result = _reason(pairings[0], only, runs[0]), only.to_mapping()
        line = only.line + because(trials) + (f" Why: {reason.brief}." if reason else "")
        return StudyAnswer(line, result | ({"why": reason.to_mapping()} if reason else {}), alarm=slower)
    together = family(found, alpha=found[0].question.alpha)
    reasons = map(_reason, pairings, together.members, runs)
    named = zip(together.members, reasons, strict=True)
    why = {each.question.name: reason.to_mapping() for each, reason in named if reason}
    slower = together.count(ComparisonDecision.SLOWER) > 0
    return StudyAnswer(together.line + because(trials), {**together.to_mapping(), "whys": why}, alarm=slower)
