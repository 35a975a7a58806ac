"""Which release of a package, or which changed package of a lock file, brought it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from scalescope import environments
from scalescope.errors import InvalidField, ScalescopeError
from scalescope.model import fields
from scalescope.model.environment import Environment, normalise
from scalescope.model.study import StudyKind
from scalescope.model.sweep import ENVIRONMENT, Point
from scalescope.model.trial import Trial
from scalescope.run.request import Ask, Request
from scalescope.run.trials import UNAVAILABLE
from scalescope.store.store import SweepRun
from scalescope.studies.inquiry import Answer, Base, Inquiry, base, because, timed
from scalescope.studies.release import search as release
from scalescope.studies.release.mixtures import difference, mixtures
from scalescope.studies.release.search import Mode, Question, Reading
from scalescope.studies.symptom import FindingSymptom, MetricSymptom, Quantity, is_comparison, metric_symptom, quantity

NEWEST = "latest"
MAX_ENVIRONMENTS, MAX_PAIRS, SMALLEST_EFFECT = 12, 20, 0.03

Symptom = Quantity | MetricSymptom | FindingSymptom


@dataclass(frozen=True)
class Candidate:
    """An environment that may have it.

    Attributes:
        label: Of the release, or of the package that is changed in it.
        text: The environment, as `Environment.parse` reads it.
    """

    label: str
    text: str


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> Inquiry:
    """The study that parameters of the flow `find_release` ask for; nothing is measured.

    Raises:
        ScalescopeError: The first thing that is wrong.
    """
    check_early(given, store, records)
    places = ("package", "good", "bad", "before", "after", "environment")
    subject, found = candidates(*(given.get(name, NEWEST if name == "bad" else "") for name in places))
    return _check(given, store, records, subject, found)


def check_early(given: Mapping[str, Any], store: str = "", records: str = "") -> None:
    """Check what can be checked without the package index.

    Raises:
        ScalescopeError: The first thing that is wrong.
    """
    _one_of(given.get("package"), given.get("before") or given.get("after"))
    if rest := given.get(ENVIRONMENT):
        Environment.parse(fields.text(ENVIRONMENT, rest))
    _check(given, store, records, "", (Candidate("good", "good = present"), Candidate("bad", "bad = present")))


def _check(given: Mapping[str, Any], store: str, records: str, subject: str, found: Sequence[Candidate]) -> Inquiry:
    names = ("metric", "finding", "max_environments", "max_pairs", "smallest_effect")
    design = {name: given[name] for name in names if name in given}
    shared = base({name: value for name, value in given.items() if name != ENVIRONMENT}, store, records)
    inquiry = check(shared, subject, found, **design)
    return replace(inquiry, question={**inquiry.question, "together_with": str(given.get(ENVIRONMENT) or "")})


def _one_of(package: object, locks: object) -> None:
    if bool(package) == bool(locks):
        raise InvalidField("package", package or None, "a package with --good, or two lock files: one of the two")


def candidates(
    package: object, good: object, bad: object, before: object, after: object, rest: str
) -> tuple[str, tuple[Candidate, ...]]:
    """Releases of a package, or mixtures of two lock files, whichever is asked for.

    Raises:
        InvalidField: Neither is, or both are.
    """
    _one_of(package, before or after)
    return of_package(package, good, bad, rest) if package else of_locks(before, after)


def of_package(package: object, good: object, bad: object, rest: str) -> tuple[str, tuple[Candidate, ...]]:
    """The releases of a package as candidates, oldest first, and what they are called together.

    Args:
        package: Its name.
        good: The last release that is known to be good.
        bad: A later one that is not; `latest` is the newest.
        rest: What else is to be installed, as requirements.

    Raises:
        InvalidField: A name or a release is not one.
        EnvironmentFailed: There is no such package.
        EnvironmentUnavailable: The index could not be asked.
    """
    name = normalise(fields.text("package", package))
    first, last = fields.text("good", good), fields.text("bad", bad)
    others = Environment.parse(rest)
    if others.python:
        raise InvalidField(ENVIRONMENT, rest, "requirements that go with every release; an interpreter cannot change")
    found = environments.releases(
        name, first=first, last="" if last == NEWEST else last, python_version=others.python_version
    )
    if len(found) < 2:
        raise InvalidField("bad", last, f"a release later than {first}", next_step="exchange good and bad")
    return name, tuple(
        Candidate(each.version, f"{name}-{each.version} = {' '.join([each.requirement, others.text])}".strip())
        for each in found
    )


def of_locks(before: object, after: object) -> tuple[str, tuple[Candidate, ...]]:
    """Mixtures of two lock files as candidates, one package changed at a time, and what they are called together.

    Args:
        before: Path of the lock file that is known to be good.
        after: Path of that which is not.

    Raises:
        InvalidField: They pin the same.
        UsageError: A file cannot be read.
    """
    sides = [
        dict(pin.split("==", 1) for pin in environments.from_lock(Path(fields.text(name, path)).expanduser()))
        for name, path in (("before", before), ("after", after))
    ]
    steps = mixtures(*sides)
    if len(steps) < 2:
        raise InvalidField("after", str(after), "a lock file that differs from the one before")
    labels = ["all of before", *(difference(a, b) for a, b in pairwise(steps))]
    candidates = []
    for number, (label, pins) in enumerate(zip(labels, steps, strict=True)):
        text = " ".join(f"{name}=={version}" for name, version in pins.items())
        candidates.append(Candidate(label, f"step-{number} = {text}"))
    return "", tuple(candidates)


def check(
    shared: Base,
    subject: str,
    candidates: Sequence[Candidate],
    *,
    metric: object = "",
    finding: object = "",
    max_environments: object = MAX_ENVIRONMENTS,
    max_pairs: object = MAX_PAIRS,
    smallest_effect: object = SMALLEST_EFFECT,
) -> Inquiry:
    """Check a question completely; nothing is measured.

    Args:
        shared: What all trials share, but for the environment.
        subject: The package; empty where several change.
        candidates: In their order: the first is good, the last is not.
        metric: A number that moved, or a comparison that came to hold.
        finding: Code of a finding that came up, in place of a metric.
        max_environments: Candidates to try at most.
        max_pairs: Pairs of trials of one candidate at most, where trials differ.
        smallest_effect: By how much the ends must differ, as a share.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    symptom = _symptom(metric, finding)
    shared = replace(shared, sweep={name: value for name, value in shared.sweep.items() if name != ENVIRONMENT})
    shared = replace(shared, values={name: value for name, value in shared.values.items() if name != ENVIRONMENT})
    question = Question(
        labels=tuple(each.label for each in candidates),
        mode=Mode.METRIC if isinstance(symptom, Quantity) else Mode.FINDING,
        subject=subject,
        symptom=_words(symptom),
        metric=symptom.text if isinstance(symptom, Quantity) else "",
        max_candidates=fields.integer("max_environments", max_environments, minimum=2, maximum=1000),
        max_pairs=fields.integer("max_pairs", max_pairs, minimum=release.FEWEST_PAIRS, maximum=1000),
        smallest_effect=fields.number("smallest_effect", smallest_effect, minimum=0, maximum=0.99),
        seed=fields.integer("seed", shared.sweep.get("seed", 0), minimum=0),
    )
    request = shared.request([{ENVIRONMENT: candidates[0].text}, {ENVIRONMENT: candidates[-1].text}])
    points = [request.sweep.point({**shared.values, ENVIRONMENT: each.text}, request.workload) for each in candidates]
    search = _Search(question, symptom, request, candidates, points)
    environment_texts = [each.text for each in candidates]
    return Inquiry(
        StudyKind.RELEASE,
        {**shared.to_mapping(), **question.to_mapping(), "environments": environment_texts},
        (replace(request, grow=timed(search.grow, shared.minutes)),),
        search.answer,
        shared.follows,
    )


def _symptom(metric: object, finding: object) -> Symptom:
    if bool(metric) == bool(finding):
        raise InvalidField("metric", metric or None, "a metric or a finding, one of the two")
    if finding:
        return FindingSymptom(fields.text("finding", finding))
    text = fields.text("metric", metric)
    return metric_symptom(text) if is_comparison(text) else quantity(text)


def _words(symptom: Symptom) -> str:
    if isinstance(symptom, FindingSymptom):
        return f"shows {symptom.present_code}"
    return f"moves {symptom.text}" if isinstance(symptom, Quantity) else f"has {symptom.text}"


@dataclass(frozen=True)
class _Search:
    """Bisection, as growth of a sweep."""

    question: Question
    symptom: Symptom
    request: Request
    candidates: Sequence[Candidate]
    points: Sequence[Point]

    def grow(self, done: Sequence[Trial]) -> list[Ask]:
        """The trials to run next."""
        asks = release.further(self.question, self._readings(done))
        return [Ask(self.points[ask.candidate], ask.turn) for ask in asks]

    def answer(self, runs: Sequence[SweepRun]) -> Answer:
        """Where it came in, with what else changed there and where the project tells of it."""
        trials = runs[0].trials
        found = release.judge(self.question, self._readings(trials))
        result: dict[str, Any] = found.to_mapping()
        if found.first_bad is None or found.last_good is None:
            return Answer(found.line + because(trials), result, alarm=True)
        good, bad = (self._packages(trials, each.index) for each in (found.last_good, found.first_bad))
        subject = self.question.subject
        others = difference(*({name: pins[name] for name in pins if name != subject} for pins in (good, bad)))
        if subject:
            result |= {"also_changed": others, "changelog": self._changelog(found.first_bad.index)}
        return Answer(found.line, result, alarm=False)

    def _readings(self, done: Sequence[Trial]) -> list[Reading]:
        places = {point.id: index for index, point in enumerate(self.points)}
        return [self._reading(places[trial.point.id], trial) for trial in done if not trial.warmup]

    def _reading(self, candidate: int, trial: Trial) -> Reading:
        if trial.facts.get(UNAVAILABLE) is True:
            return Reading(candidate, trial.repeat, unavailable=True)
        if isinstance(self.symptom, Quantity):
            return Reading(candidate, trial.repeat, self.symptom.of(trial))
        value = self.symptom.shows(self.request.sweep, trial) if trial.counts else None
        return Reading(candidate, trial.repeat, value)

    def _packages(self, trials: Sequence[Trial], candidate: int) -> Mapping[str, str]:
        """What was installed there."""
        point = self.points[candidate].id
        lists = (trial.facts.get("packages") for trial in trials if trial.point.id == point)
        return next((found for found in lists if isinstance(found, Mapping)), {})

    def _changelog(self, candidate: int) -> str:
        """Address of what the project tells of its releases; empty where its metadata has none."""
        try:
            built = environments.ensure(Environment.parse(self.candidates[candidate].text))
            return environments.changelog(built, self.question.subject)
        except ScalescopeError:  # it was pruned meanwhile: the answer stands without an address
            return ""
