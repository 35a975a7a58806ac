"""Checks the parameters of a search for a release, and plans it: its candidates, then commits between two of them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalescope import environments
from scalescope.analysis.culprits import changed_packages
from scalescope.environments import git
from scalescope.environments.git import Commit
from scalescope.errors import EnvironmentFailed, InvalidField, ScalescopeError
from scalescope.model import fields, parameters
from scalescope.model.environment import Environment, normalise, requirement, split_repository
from scalescope.model.sweep import ENVIRONMENT, Point
from scalescope.model.trial import Trial
from scalescope.report import run_difference
from scalescope.run.growth import ExtraTrial
from scalescope.run.request import RunRequest
from scalescope.run.trials import UNAVAILABLE
from scalescope.store.store import Store, SweepRun
from scalescope.studies.planning import PlannedStudy, SharedSettings, StudyAnswer, because, shared_settings, timed
from scalescope.studies.release.judge import (
    Mode,
    ReleaseAnswer,
    ReleaseDecision,
    ReleaseQuestion,
    ReleaseReading,
    further,
    judge,
)
from scalescope.studies.release.parameters import NEWEST, ReleaseParameters
from scalescope.studies.symptom import FindingSymptom, MetricSymptom, Quantity, is_comparison, metric_symptom, quantity

Symptom = Quantity | MetricSymptom | FindingSymptom

# Most searches after the first: among commits between two releases, then inside a merge, then inside a nested merge
MOST_DEEPER = 3

_RELEASE = re.compile(r"^\d+(\.\d+)+\S*$")


@dataclass(frozen=True)
class Candidates:
    """The candidates of a search, in order."""

    subject: str  # name of the package; empty if the search is for one of several packages
    environments: Mapping[str, str]  # environments by label
    versions: Sequence[str] = ()  # versions of the package, one for each environment; empty without `subject`
    commits: Sequence[Commit] = ()  # commits, one for each environment; empty if candidates are releases or mixtures


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    check(given, store, records)
    asked = parameters.check(ReleaseParameters, given)
    inquiry = _inquiry(given, asked, store, records)
    first = inquiry.search(_of_package(asked) if asked.package else _of_locks(asked))
    plan = _ReleasePlan(inquiry, first, _repository(asked))
    return PlannedStudy(
        "release",
        {
            **inquiry.shared.to_mapping(),
            **first.question.to_mapping(),
            "environments": list(first.candidates.environments.values()),
            "together_with": asked.environment,
            **({"repository": plan.repository} if plan.repository else {}),
        },
        (inquiry.timed(first), *[plan.request] * (MOST_DEEPER if plan.repository else 0)),
        plan.answer,
        inquiry.shared.follows,
    )


def check(given: Mapping[str, Any], store: str = "", records: str = "") -> None:
    asked = parameters.check(ReleaseParameters, given)
    if bool(asked.package) == bool(asked.before or asked.after):
        raise InvalidField("package", asked.package, "either a package and a good release, or two lock files")
    if asked.environment:
        Environment.parse(asked.environment)
    _repository(asked)
    _inquiry(given, asked, store, records).search(Candidates("", {"good": "good = present", "bad": "bad = present"}))


def _inquiry(given: Mapping[str, Any], asked: ReleaseParameters, store: str, records: str) -> _Inquiry:
    symptom = _symptom(asked)
    shared = shared_settings({**given, ENVIRONMENT: ""}, asked, store, records)
    shared = replace(
        shared,
        sweep={name: value for name, value in shared.sweep.items() if name != ENVIRONMENT},
        values={name: value for name, value in shared.values.items() if name != ENVIRONMENT},
    )
    return _Inquiry(asked, shared, symptom)


# ------------------------------------------------------------------ candidates


def _of_package(asked: ReleaseParameters) -> Candidates:
    good, bad = fields.text("good", asked.good), fields.text("bad", asked.bad)
    others = Environment.parse(asked.environment)
    if others.python:
        raise InvalidField(
            ENVIRONMENT, asked.environment, "requirements to install with every release, not an interpreter"
        )
    released = bool(_RELEASE.match(good)) and (bad == NEWEST or bool(_RELEASE.match(bad)))
    repository = _repository(asked)
    if repository and not released:
        return _of_commits(asked, *(_commit(repository, end) for end in (good, "HEAD" if bad == NEWEST else bad)))
    name, until = _name(asked), "" if bad == NEWEST else bad
    found = environments.releases(name, first=good, last=until, python_version=others.python_version)
    if len(found) < 2:
        raise InvalidField("bad", bad, f"a release later than {good}", next_step="exchange good and bad")
    if repository:  # raises an error now, before measuring, if an end has no tag
        for end in (found[0], found[-1]):
            git.of_release(repository, end.version)
    texts = {each.version: f"{name}-{each.version} = {each.requirement} {others.text}".strip() for each in found}
    return Candidates(name, texts, [each.version for each in found])


def _of_commits(asked: ReleaseParameters, good: str, bad: str) -> Candidates:
    name, repository = _name(asked), _repository(asked)
    commits = git.history(repository, good, bad)
    if len(commits) < 2:
        raise InvalidField("bad", bad, f"a commit later than {good}", next_step="exchange good and bad")
    others = Environment.parse(asked.environment).text
    versions = [f"git+{repository}@{each.id}" for each in commits]
    texts = {
        each.label: f"{name}-{each.id[:10]} = {requirement(name, version)} {others}".strip()
        for each, version in zip(commits, versions, strict=True)
    }
    return Candidates(name, texts, versions, commits)


def _commit(repository: str, end: str) -> str:
    return git.of_release(repository, end) if _RELEASE.match(end) else git.commit(repository, end)


def _name(asked: ReleaseParameters) -> str:
    return normalise(asked.package.partition("@")[0].strip())


def _repository(asked: ReleaseParameters) -> str:
    """Address of the package's repository; empty if only releases are searched."""
    if "@" not in asked.package:
        return ""
    found = [split_repository(each) for each in Environment.parse(asked.package, "package").requirements]
    if len(found) != 1 or found[0] is None or found[0].ref or found[0].package != _name(asked):
        raise InvalidField("package", asked.package, "a name and the address of a repository: NAME @ git+https://...")
    return found[0].address


def _of_locks(asked: ReleaseParameters) -> Candidates:
    sides = [
        environments.from_lock(Path(fields.text(name, path)).expanduser())
        for name, path in (("before", asked.before), ("after", asked.after))
    ]
    steps = mixtures(*sides)
    if len(steps) < 2:
        raise InvalidField("after", asked.after, "a lock file with other packages than `before`")
    labels = ["all of before", *(str(each) for each in changed_packages(steps[0], steps[-1]))]
    texts = [" ".join(requirement(name, version) for name, version in pins.items()) for pins in steps]
    steps_by_label = zip(labels, texts, strict=True)
    return Candidates("", {label: f"step-{i} = {text}" for i, (label, text) in enumerate(steps_by_label)})


def _symptom(asked: ReleaseParameters) -> Symptom:
    if bool(asked.metric) == bool(asked.finding):
        raise InvalidField("metric", asked.metric, "either a metric or a finding")
    if asked.finding:
        return FindingSymptom(asked.finding)
    return metric_symptom(asked.metric) if is_comparison(asked.metric) else quantity(asked.metric)


def _words(symptom: Symptom) -> str:
    if isinstance(symptom, FindingSymptom):
        return f"shows {symptom.code}"
    return f"moves {symptom.text}" if isinstance(symptom, Quantity) else f"has {symptom.text}"


# ------------------------------------------------------------------ searches


@dataclass(frozen=True)
class _Inquiry:
    """Settings that all searches of a study share."""

    asked: ReleaseParameters
    shared: SharedSettings
    symptom: Symptom
    began: float = field(default_factory=time.monotonic)

    def search(self, candidates: Candidates) -> _ReleaseSearch:
        asked, shared = self.asked, self.shared
        question = ReleaseQuestion(
            labels=tuple(candidates.environments),
            mode=Mode.METRIC if isinstance(self.symptom, Quantity) else Mode.FINDING,
            subject=candidates.subject,
            symptom=_words(self.symptom),
            metric=self.symptom.text if isinstance(self.symptom, Quantity) else "",
            max_candidates=asked.max_environments,
            max_pairs=asked.max_pairs,
            smallest_effect=asked.smallest_effect,
            seed=shared.sweep.get("seed", 0),
        )
        texts = list(candidates.environments.values())
        request = shared.request([{ENVIRONMENT: texts[0]}, {ENVIRONMENT: texts[-1]}])
        points = [request.sweep.point({**shared.values, ENVIRONMENT: text}, request.workload) for text in texts]
        return _ReleaseSearch(question, self.symptom, request, points, candidates)

    def timed(self, search: _ReleaseSearch) -> RunRequest:
        spent = (time.monotonic() - self.began) / 60
        return timed(search.request, search.grow, self.shared.minutes - spent)


@dataclass(frozen=True)
class _ReleasePlan:
    """A search and its continuations: the commits between two releases, then those of a merge."""

    inquiry: _Inquiry
    first: _ReleaseSearch
    repository: str  # address; empty: no commits are searched

    def request(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
        searches, _ = self._searches(runs)
        return self.inquiry.timed(searches[len(runs)]) if searches[len(runs) :] else None

    def answer(self, runs: Sequence[SweepRun]) -> StudyAnswer:
        """The answer of the last search that found a boundary, else of the first search."""
        searches, problem = self._searches(runs)
        answers = [search.answer(run) for search, run in zip(searches, runs, strict=False)]
        last = max((i for i, each in enumerate(answers) if not each.alarm), default=0)
        result = dict(answers[last].result)
        if last:
            result["environments"] = list(searches[last].candidates.environments.values())
            result["earlier"] = [each.line for each in answers[:last]]
        if further := [each.line for each in answers[last + 1 :]] or ([problem] if problem else []):
            result["further"] = further[0]
        return replace(answers[last], result=result)

    def _searches(self, runs: Sequence[SweepRun]) -> tuple[list[_ReleaseSearch], str]:
        """The search of each run, then the next one unless none follows; and the text of an error that prevented it."""
        found = [self.first]
        try:
            for run in runs:
                candidates = self._deeper(found[-1], run)
                if candidates is None:
                    break
                found.append(self.inquiry.search(candidates))
        except (EnvironmentFailed, InvalidField) as error:
            return found, error.line
        return found, ""

    def _deeper(self, search: _ReleaseSearch, run: SweepRun) -> Candidates | None:
        answer = search.judged(run.trials)
        if not self.repository or answer.first_bad is None or answer.last_good is None:
            return None
        commits, asked = search.candidates.commits, self.inquiry.asked
        if not commits:
            ends = (git.of_release(self.repository, each.label) for each in (answer.last_good, answer.first_bad))
            return _of_commits(asked, *ends)
        parents = commits[answer.first_bad.index].parents
        if answer.decision is not ReleaseDecision.FOUND or len(parents) < 2:
            return None
        return _of_commits(asked, parents[0], parents[1])


@dataclass(frozen=True)
class _ReleaseSearch:
    question: ReleaseQuestion
    symptom: Symptom
    request: RunRequest
    points: Sequence[Point]
    candidates: Candidates

    def grow(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        asks = further(self.question, self._readings(done))
        return [ExtraTrial(self.points[ask.candidate], ask.turn) for ask in asks]

    def judged(self, trials: Sequence[Trial]) -> ReleaseAnswer:
        return judge(self.question, self._readings(trials))

    def answer(self, run: SweepRun) -> StudyAnswer:
        found = self.judged(run.trials)
        result: dict[str, Any] = found.to_mapping()
        if found.first_bad is None or found.last_good is None:
            return StudyAnswer(found.line + because(run.trials), result, alarm=True)
        good, bad = (self._packages(run.trials, each.index) for each in (found.last_good, found.first_bad))
        subject = self.question.subject
        others = ", ".join(str(each) for each in changed_packages(good, bad) if each.name != subject)
        if subject:
            versions = [self.candidates.versions[each.index] for each in (found.last_good, found.first_bad)]
            changelog = self._changelog(found.first_bad.index)
            result |= {"also_changed": others, "changelog": changelog, "versions": versions}
        sides = [self._counted(run.trials, each.index) for each in (found.last_good, found.first_bad)]
        labels = (found.last_good.label, found.first_bad.label)
        reason = run_difference.explained(sides[0], sides[1], labels=labels)
        line = found.line + (f" Why: {reason.brief}." if reason else "")
        return StudyAnswer(line, result | ({"why": reason.to_mapping()} if reason else {}), alarm=False)

    def _counted(self, trials: Sequence[Trial], candidate: int) -> list[Trial]:
        return [trial for trial in trials if trial.counts and trial.point.id == self.points[candidate].id]

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
        except ScalescopeError:  # the environment was pruned meanwhile: the answer has no link to a changelog
            return ""


def mixtures(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    """All steps from `before` to `after` (versions by package), both included; each step changes one package.

    Packages with similar names change in adjacent steps, because they are often released together: mixtures that cannot
    be installed then lie next to each other. Names are normalised (PEP 503).
    """
    steps = [{normalise(name): version for name, version in before.items()}]
    for each in changed_packages(before, after):
        step = {name: version for name, version in steps[-1].items() if name != each.name}
        steps.append(step | ({each.name: each.b} if each.b else {}))
    return tuple(dict(sorted(step.items())) for step in steps)
