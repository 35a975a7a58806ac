"""Runs tonight's and the last good night's environments in turn, to see whether a change is real, and its cause."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log1p
from pathlib import Path
from typing import Any

from scalescope import environments
from scalescope.analysis.culprits import DifferingFact, changed_packages
from scalescope.errors import InfrastructureError, UsageError
from scalescope.model.environment import requirement, split_repository
from scalescope.model.sweep import Point
from scalescope.nightly import regression_script
from scalescope.nightly.night_record import Alert, ChangeOutcome, Culprit, Judged, Night, SoftwareLock
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.series import ChangeCandidate, machine
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner, RunStep
from scalescope.studies.comparison.judge import ComparisonDecision
from scalescope.studies.running import StudyResult, run_study

GOOD, TONIGHT = "last-good", "tonight"  # names of the two environments
# errors of a rerun that do not end the night; errors of the store do
FAILURES = (UsageError, InfrastructureError)
# outcome of a change whose rerun shows it, too
_CONFIRMED = {ComparisonDecision.SLOWER: ChangeOutcome.CONFIRMED, ComparisonDecision.FASTER: ChangeOutcome.FASTER}

SHOW = RunStep(
    "script", regression_script.show, timeout_s=lambda text, seconds: min(seconds, regression_script.LONGEST_S) + 60
)


@dataclass(frozen=True)
class Reruns:
    """Makes the reruns of a night, one after the other on this machine; each is a study of its own."""

    asked: NightlyParameters
    night: str  # id of tonight's study, which the reruns follow
    lock: SoftwareLock  # tonight's software
    store: str  # address of the store, as the user gave it
    runner: Runner
    until: float  # time (`time.monotonic`) after which no rerun begins

    @classmethod
    def begin(cls, asked: NightlyParameters, night: str, lock: SoftwareLock, store: str, runner: Runner) -> Reruns:
        return cls(asked, night, lock, store, runner, time.monotonic() + 60 * asked.minutes)

    @property
    def minutes(self) -> float:
        """Minutes left for reruns."""
        return max(self.until - time.monotonic(), 0.0) / 60

    def _study(self, kind: str, of: Judged | ChangeCandidate, **given: Any) -> StudyResult:
        series = of.series
        common = {
            "values": Point.from_mapping(series.point).values,
            "cluster": series.cluster,
            "metric": series.metric,
            "max_pairs": self.asked.max_pairs,
            "minutes": max(self.minutes, 0.01),
            "trial_timeout_s": self.asked.trial_timeout_s,
            "seed": self.asked.seed,
            "store": self.store,
        }
        return run_study(kind, {**common, **given}, self.runner, follows=self.night)

    def _compare(self, of: Judged | ChangeCandidate, good: str) -> StudyResult:
        tonight = f"{TONIGHT} = {self.lock.text or 'present'}"
        sides = {"a": {"environment": f"{GOOD} = {good}"}, "b": {"environment": tonight}}
        return self._study("comparison", of, workloads=[of.series.workload], **sides)

    def judge(self, found: ChangeCandidate) -> Judged:
        """Examine a change: rerun it, unless the software is the same or a control workload explains it."""
        good = found.good.record.lock
        differs = f"Differences of the machine: {machine(found.tonight.host, found.good_measured.host)}."
        if good.pins == self.lock.pins:
            return _judged(found, ChangeOutcome.MACHINE, f"The software is the same: look at the machine. {differs}")
        if found.control:
            reason = f"The machine changed: {found.control.words}. {differs}"
            return replace(_judged(found, ChangeOutcome.MACHINE, reason), control=found.control.ratio)
        if not self.minutes:
            return _judged(found, ChangeOutcome.WAITING, "The time for reruns is used up; the next night may rerun it.")
        try:
            result = self._compare(found, good.pinned)
        except FAILURES as error:
            return _judged(found, ChangeOutcome.UNTESTABLE, f"The rerun could not be made: {error.line}")
        decision = ComparisonDecision(result.result["decision"])
        expected = ComparisonDecision.SLOWER if found.worse else ComparisonDecision.FASTER
        if decision is expected:
            judged = _judged(found, _CONFIRMED[decision], result.line, result)
            if judged.ratio is None or judged.size >= log1p(self.asked.smallest_effect / 2):
                return judged
            reason = f"The rerun shows less than half of the smallest effect. {result.line}"
            return replace(judged, outcome=ChangeOutcome.REFUTED, reason=reason)
        if decision is ComparisonDecision.UNDECIDED:
            return _judged(found, ChangeOutcome.UNDECIDED, result.line, result)
        reason = f"In the rerun, tonight's environment is not {expected}: suspect the machine. {differs} {result.line}"
        return _judged(found, ChangeOutcome.REFUTED, reason, result)

    def culprit(self, change: Judged, good: Night) -> Culprit:
        """The package that brought a confirmed change, and its first bad release.

        `find-release` first searches among all packages that differ, then among the releases of the found package.
        """
        before, after = good.record.lock.pins, self.lock.pins
        facts = changed_packages(before, after)
        changed = ", ".join(map(str, facts))
        names = [each.name for each in facts]
        studies: list[str] = []
        try:
            if len(names) > 1:
                if not self.minutes:
                    return Culprit("Not searched: the time for reruns was used up.", changed=changed, found=False)
                found = self._among_packages(change, before, after)
                studies.append(found.study_id)
                if found.alarm:
                    why = f"Not found among {len(names)} packages: {found.line}"
                    return Culprit(why, changed=changed, found=False)
                names = [found.result["first_bad"]["label"].split()[0]]
            [package] = names
            culprit = self._release(change, package, before, after, studies)
            return replace(culprit, changed=changed, studies=tuple(studies))
        except FAILURES as error:
            return Culprit(f"Not found: {error.line}", changed=changed, studies=tuple(studies), found=False)

    def _among_packages(self, change: Judged, before: Mapping[str, str], after: Mapping[str, str]) -> StudyResult:
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            for name, pins in (("before", before), ("after", after)):
                path = Path(folder) / f"{name}.txt"
                path.write_text("".join(f"{requirement(package, version)}\n" for package, version in pins.items()))
                files[name] = str(path)
            return self._study("release", change, workload=change.series.workload, **files)

    def _release(
        self, change: Judged, package: str, before: Mapping[str, str], after: Mapping[str, str], studies: list[str]
    ) -> Culprit:
        """Find the first bad release of a package; adds the study's id to `studies`."""
        good, bad = before.get(package, ""), after.get(package, "")
        line = str(DifferingFact("package", package, good, bad))
        whole = Culprit(line, package, good, bad)
        ends = _ends(package, good, bad) if good and bad and package != "python" else {}
        if not ends:
            return whole
        rest = {name: version for name, version in after.items() if name != package}
        python, released = after.get("python", ""), ends["package"] == package
        try:
            if released and len(environments.releases(package, first=good, last=bad, python_version=python)) <= 2:
                return whole
            given = {**ends, "environment": SoftwareLock(pins=rest).pinned}
            found = self._study("release", change, workload=change.series.workload, **given)
        except FAILURES as error:
            return replace(whole, line=f"{line} (its releases could not be searched: {error.line})")
        studies.append(found.study_id)
        if found.alarm:
            return replace(whole, line=f"{line} (the release was not found: {found.line})")
        last_good, first_bad = (found.result[end]["label"] for end in ("last_good", "first_bad"))
        news = str(found.result.get("changelog") or "")
        good, bad = found.result["versions"]
        return Culprit(f"{package} {last_good} → {first_bad}", package, good, bad, changelog=news)

    def explains(self, found: Culprit, change: Judged, good: Night) -> bool:
        """Whether another change's culprit explains this one.

        It does if no other package differs, or if a rerun with the culprit's last good release undoes this change.
        """
        if not found.package:
            return False
        without, good_without = (
            {name: version for name, version in pins.items() if name != found.package}
            for pins in (self.lock.pins, good.record.lock.pins)
        )
        if without == good_without:
            return True
        if not found.good or not self.minutes:
            return False
        try:
            result = self._compare(change, SoftwareLock(pins={**without, found.package: found.good}).pinned).result
            return _CONFIRMED.get(ComparisonDecision(result["decision"])) is change.outcome
        except FAILURES:  # that environment cannot be built: search this change's cause separately
            return False

    def try_script(self, alert: Alert) -> Alert:
        """The alert with the result of running its script, if there is time."""
        if not alert.script:
            return alert
        if not self.minutes:
            return replace(alert, shown="Not run: the time for reruns was used up.")
        self.runner.tell(Progress(0, 0, "Running the script that shows the regression", notable=True))
        shows, words = self.runner.do(SHOW, alert.script, 60 * self.minutes)
        shown = f"{'Run here, it shows the change' if shows else 'Run here, it does not show the change'}: {words}"
        self.runner.tell(Progress(0, 0, shown, notable=True))
        return replace(alert, shown=shown)


def _judged(found: ChangeCandidate, outcome: ChangeOutcome, reason: str, result: StudyResult | None = None) -> Judged:
    measured: Mapping[str, Any] = result.result if result else {}
    return Judged(
        series=found.series,
        good=found.good.id,
        before=found.before,
        after=found.after,
        outcome=outcome,
        reason=reason,
        ratio=measured.get("ratio"),
        low=measured.get("low"),
        high=measured.get("high"),
        study=result.study_id if result else "",
        why=str((measured.get("why") or {}).get("reason", "")),
    )


def _ends(package: str, good: str, bad: str) -> dict[str, str]:
    """Parameters of a search between two versions; empty unless both are releases, or commits of one repository."""
    a, b = (split_repository(requirement(package, version)) for version in (good, bad))
    if a and b and a.address == b.address:
        return {"package": f"{package}@git+{a.address}", "good": a.ref, "bad": b.ref}
    return {} if a or b else {"package": package, "good": good, "bad": bad}
