"""Checks what a search for a release is given, and plans its candidates: releases, or packages of two lock files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from scalescope import environments
from scalescope.errors import InvalidField, ScalescopeError
from scalescope.model import fields, parameters
from scalescope.model.environment import Environment, normalise
from scalescope.model.sweep import ENVIRONMENT, Point
from scalescope.model.trial import Trial
from scalescope.run.growth import ExtraTrial
from scalescope.run.request import RunRequest
from scalescope.run.trials import UNAVAILABLE
from scalescope.store.store import SweepRun
from scalescope.studies.planning import PlannedStudy, StudyAnswer, because, shared_settings, timed
from scalescope.studies.release.judge import Mode, ReleaseQuestion, ReleaseReading, further, judge
from scalescope.studies.release.mixtures import difference, mixtures
from scalescope.studies.release.parameters import NEWEST, ReleaseParameters
from scalescope.studies.symptom import FindingSymptom, MetricSymptom, Quantity, is_comparison, metric_symptom, quantity

Symptom = Quantity | MetricSymptom | FindingSymptom


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    check(given, store, records)
    asked = parameters.check(ReleaseParameters, given)
    if asked.package:
        return _inquiry(given, store, records, *_of_package(asked))
    return _inquiry(given, store, records, "", _of_locks(asked))


def check(given: Mapping[str, Any], store: str = "", records: str = "") -> None:
    asked = parameters.check(ReleaseParameters, given)
    if bool(asked.package) == bool(asked.before or asked.after):
        raise InvalidField("package", asked.package, "a package and a good release, or two lock files: one of the two")
    if asked.environment:
        Environment.parse(asked.environment)
    _inquiry(given, store, records, "", {"good": "good = present", "bad": "bad = present"})


def _inquiry(
    given: Mapping[str, Any], store: str, records: str, subject: str, candidates: Mapping[str, str]
) -> PlannedStudy:
    asked = parameters.check(ReleaseParameters, given)
    symptom = _symptom(asked)
    shared = shared_settings({**given, ENVIRONMENT: ""}, asked, store, records)
    shared = replace(
        shared,
        sweep={name: value for name, value in shared.sweep.items() if name != ENVIRONMENT},
        values={name: value for name, value in shared.values.items() if name != ENVIRONMENT},
    )
    question = ReleaseQuestion(
        labels=tuple(candidates),
        mode=Mode.METRIC if isinstance(symptom, Quantity) else Mode.FINDING,
        subject=subject,
        symptom=_words(symptom),
        metric=symptom.text if isinstance(symptom, Quantity) else "",
        max_candidates=asked.max_environments,
        max_pairs=asked.max_pairs,
        smallest_effect=asked.smallest_effect,
        seed=shared.sweep.get("seed", 0),
    )
    texts = list(candidates.values())
    request = shared.request([{ENVIRONMENT: texts[0]}, {ENVIRONMENT: texts[-1]}])
    points = [request.sweep.point({**shared.values, ENVIRONMENT: text}, request.workload) for text in texts]
    search = _ReleaseSearch(question, symptom, request, points)
    return PlannedStudy(
        "release",
        {**shared.to_mapping(), **question.to_mapping(), "environments": texts, "together_with": asked.environment},
        (timed(request, search.grow, shared.minutes),),
        search.answer,
        shared.follows,
    )


def _of_package(asked: ReleaseParameters) -> tuple[str, dict[str, str]]:
    name, first, last = normalise(asked.package), fields.text("good", asked.good), fields.text("bad", asked.bad)
    others = Environment.parse(asked.environment)
    if others.python:
        raise InvalidField(
            ENVIRONMENT, asked.environment, "requirements that go with every release; an interpreter cannot change"
        )
    until = "" if last == NEWEST else last
    found = environments.releases(name, first=first, last=until, python_version=others.python_version)
    if len(found) < 2:
        raise InvalidField("bad", last, f"a release later than {first}", next_step="exchange good and bad")
    return name, {each.version: f"{name}-{each.version} = {each.requirement} {others.text}".strip() for each in found}


def _of_locks(asked: ReleaseParameters) -> dict[str, str]:
    sides = [
        dict(pin.split("==", 1) for pin in environments.from_lock(Path(fields.text(name, path)).expanduser()))
        for name, path in (("before", asked.before), ("after", asked.after))
    ]
    steps = mixtures(*sides)
    if len(steps) < 2:
        raise InvalidField("after", asked.after, "a lock file that differs from the one before")
    labels = ["all of before", *(difference(a, b) for a, b in pairwise(steps))]
    texts = (" ".join(f"{name}=={version}" for name, version in pins.items()) for pins in steps)
    return {label: f"step-{i} = {text}" for i, (label, text) in enumerate(zip(labels, texts, strict=True))}


def _symptom(asked: ReleaseParameters) -> Symptom:
    if bool(asked.metric) == bool(asked.finding):
        raise InvalidField("metric", asked.metric, "a metric or a finding, one of the two")
    if asked.finding:
        return FindingSymptom(asked.finding)
    return metric_symptom(asked.metric) if is_comparison(asked.metric) else quantity(asked.metric)


def _words(symptom: Symptom) -> str:
    if isinstance(symptom, FindingSymptom):
        return f"shows {symptom.code}"
    return f"moves {symptom.text}" if isinstance(symptom, Quantity) else f"has {symptom.text}"


@dataclass(frozen=True)
class _ReleaseSearch:
    question: ReleaseQuestion
    symptom: Symptom
    request: RunRequest
    points: Sequence[Point]

    def grow(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        asks = further(self.question, self._readings(done))
        return [ExtraTrial(self.points[ask.candidate], ask.turn) for ask in asks]

    def answer(self, runs: Sequence[SweepRun]) -> StudyAnswer:
        trials = runs[0].trials
        found = judge(self.question, self._readings(trials))
        result: dict[str, Any] = found.to_mapping()
        if found.first_bad is None or found.last_good is None:
            return StudyAnswer(found.line + because(trials), result, alarm=True)
        good, bad = (self._packages(trials, each.index) for each in (found.last_good, found.first_bad))
        subject = self.question.subject
        others = difference(*({name: pins[name] for name in pins if name != subject} for pins in (good, bad)))
        if subject:
            result |= {"also_changed": others, "changelog": self._changelog(found.first_bad.index)}
        return StudyAnswer(found.line, result, alarm=False)

    def _readings(self, done: Sequence[Trial]) -> list[ReleaseReading]:
        places = {point.id: index for index, point in enumerate(self.points)}
        return [self._reading(places[trial.point.id], trial) for trial in done if not trial.warmup]

    def _reading(self, candidate: int, trial: Trial) -> ReleaseReading:
        if trial.facts.get(UNAVAILABLE) is True:
            return ReleaseReading(candidate, trial.repeat, unavailable=True)
        if isinstance(self.symptom, Quantity):
            return ReleaseReading(candidate, trial.repeat, self.symptom.of(trial))
        value = self.symptom.shows(self.request.sweep, trial) if trial.counts else None
        return ReleaseReading(candidate, trial.repeat, value)

    def _packages(self, trials: Sequence[Trial], candidate: int) -> Mapping[str, str]:
        point = self.points[candidate].id
        lists = (trial.facts.get("packages") for trial in trials if trial.point.id == point)
        return next((found for found in lists if isinstance(found, Mapping)), {})

    def _changelog(self, candidate: int) -> str:
        try:
            built = environments.ensure(Environment.parse(self.points[candidate].environment))
            return environments.changelog(built, self.question.subject)
        except ScalescopeError:  # it was pruned meanwhile: the answer stands without an address
            return ""
