"""Whether a change is real, and what brought it: reruns of tonight's environment against the last good night's.

All of it are studies of their own (`compare`, `find-release`), made here and now, one after the other on this machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalescope import environments
from scalescope.errors import ScalescopeError, StoreError
from scalescope.model.study import StudyKind
from scalescope.model.sweep import Point
from scalescope.nightly import regression_script
from scalescope.nightly.night_record import Alert, ChangeOutcome, Culprit, Judged, Night, SoftwareLock
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.series import ChangeCandidate, machine
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner, RunStep
from scalescope.studies.comparison.judge import ComparisonDecision
from scalescope.studies.release.mixtures import difference
from scalescope.studies.running import StudyResult, run_study

GOOD, TONIGHT = "last-good", "tonight"
"""What the two environments are called."""

_CONFIRMED = {ComparisonDecision.SLOWER: ChangeOutcome.CONFIRMED, ComparisonDecision.FASTER: ChangeOutcome.FASTER}
"""What a rerun makes of a change in the same direction."""


@dataclass(frozen=True)
class Reruns:
    """What reruns need.

    Attributes:
        asked: Of the night.
        night: Id of tonight's study, which they follow.
        lock: Tonight's software.
        store: As the user gave it.
        runner: Carries them out.
        until: When no further one begins, by `time.monotonic`.
    """

    asked: NightlyParameters
    night: str
    lock: SoftwareLock
    store: str
    runner: Runner
    until: float

    @property
    def minutes(self) -> float:
        """That are left."""
        return max(self.until - time.monotonic(), 0.0) / 60

    @property
    def tonight(self) -> str:
        """Tonight's environment."""
        return f"{TONIGHT} = {self.lock.text or 'present'}"

    def study(self, kind: StudyKind, of: Judged | ChangeCandidate, **given: Any) -> StudyResult:
        """Carry out a study of one series, within the time that is left.

        Raises:
            ScalescopeError: It could not be carried out.
        """
        point, series = Point.from_mapping(of.series.point), of.series
        return run_study(
            kind,
            {
                "values": point.values,
                "cluster": series.cluster,
                "metric": series.metric,
                "max_pairs": self.asked.max_pairs,
                "minutes": max(self.minutes, 0.01),
                "trial_timeout_s": self.asked.trial_timeout_s,
                "seed": self.asked.seed,
                "store": self.store,
                **given,
            },
            self.runner,
            follows=self.night,
        )

    def compare(self, of: Judged | ChangeCandidate, good: str) -> StudyResult:
        """Tonight's environment against another one.

        Raises:
            ScalescopeError: It could not be carried out.
        """
        sides = {"a": {"environment": f"{GOOD} = {good}"}, "b": {"environment": self.tonight}}
        return self.study(StudyKind.COMPARISON, of, workloads=[of.series.workload], **sides)


def judge(bench: Reruns, found: ChangeCandidate) -> Judged:
    """Look into a change.

    Raises:
        StoreError: The store refuses.
    """
    good = found.good.record.lock
    if good.pins == bench.lock.pins:
        text = "The environment is equal: look at the machine. " + _machine(found)
        return _judged(found, ChangeOutcome.MACHINE, text)
    if not bench.minutes:
        return _judged(found, ChangeOutcome.WAITING, "The time for reruns is used up; the next night goes on.")
    try:
        result = bench.compare(found, good.pinned)
    except StoreError:
        raise
    except ScalescopeError as error:
        return _judged(found, ChangeOutcome.UNTESTABLE, f"The rerun could not be made: {error.line}")
    decision = ComparisonDecision(result.result["decision"])
    expected = ComparisonDecision.SLOWER if found.worse else ComparisonDecision.FASTER
    if decision is expected:
        return _judged(found, _CONFIRMED[decision], result.line, result)
    if decision is ComparisonDecision.UNDECIDED:
        return _judged(found, ChangeOutcome.UNDECIDED, result.line, result)
    said = f"Rerun now, tonight's environment is not {expected}: the machine was. {_machine(found)} {result.line}"
    return _judged(found, ChangeOutcome.REFUTED, said, result)


def _machine(found: ChangeCandidate) -> str:
    return f"Of it, {machine(found.tonight.host, found.good_measured.host)}."


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
    )


# ------------------------------------------------------------------ the culprit


def culprit(bench: Reruns, change: Judged, good: Night) -> Culprit:
    """Which package brought a confirmed change, and which of its releases.

    Where one package differs, it is that one; where several do, `find-release` changes them one by one. Where there
    are releases between the two, it is searched again among these.

    Raises:
        StoreError: The store refuses.
    """
    before, after = good.record.lock.pins, bench.lock.pins
    changed = difference(before, after)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    studies: list[str] = []
    try:
        if len(names) > 1:
            if not bench.minutes:
                return Culprit("Not searched: the time for reruns was used up.", changed=changed)
            found = _among_packages(bench, change, before, after)
            studies.append(found.study_id)
            if found.alarm:
                return Culprit(f"Not found among {len(names)} packages: {found.line}", changed=changed)
            names = [found.result["first_bad"]["label"].split()[0]]
        [package] = names
        return _release(bench, change, package, before, after, changed, studies)
    except StoreError:
        raise
    except ScalescopeError as error:
        return Culprit(f"Not found: {error.line}", changed=changed, studies=tuple(studies))


def _among_packages(bench: Reruns, change: Judged, before: Mapping[str, str], after: Mapping[str, str]) -> StudyResult:
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, pins in (("before", before), ("after", after)):
            path = Path(folder) / f"{name}.txt"
            path.write_text("".join(f"{package}=={version}\n" for package, version in pins.items()))
            files[name] = str(path)
        return bench.study(StudyKind.RELEASE, change, workload=change.series.workload, **files)


def _release(
    bench: Reruns,
    change: Judged,
    package: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    changed: str,
    studies: list[str],
) -> Culprit:
    """Down to the first release that is worse.

    Raises:
        ScalescopeError: The releases cannot be listed.
    """
    good, bad = before.get(package, ""), after.get(package, "")
    line = f"{package} {good} → {bad}" if good and bad else f"{package} {bad} added" if bad else f"{package} removed"
    whole = Culprit(line, package, good, bad, changed, studies=tuple(studies))
    if not (good and bad) or package == "python":
        return whole
    rest = {name: version for name, version in after.items() if name != package}
    try:
        between = environments.releases(package, first=good, last=bad, python_version=after.get("python", ""))
        if len(between) <= 2:
            return whole
        given = {"package": package, "good": good, "bad": bad, "environment": SoftwareLock(pins=rest).pinned}
        found = bench.study(StudyKind.RELEASE, change, workload=change.series.workload, **given)
    except StoreError:
        raise
    except ScalescopeError as error:
        return Culprit(f"{line} (its releases could not be searched: {error.line})", package, good, bad, changed)
    studies.append(found.study_id)
    if found.alarm:
        return Culprit(
            f"{line} (which of its releases is not clear: {found.line})",
            package,
            good,
            bad,
            changed,
            "",
            tuple(studies),
        )
    [last_good, first_bad] = [found.result[end]["label"] for end in ("last_good", "first_bad")]
    news = str(found.result.get("changelog") or "")
    return Culprit(f"{package} {last_good} → {first_bad}", package, last_good, first_bad, changed, news, tuple(studies))


def explains(bench: Reruns, found: Culprit, change: Judged, good: Night) -> bool:
    """Whether a culprit that one change has explains another, too: without it, tonight's environment is not slower.

    Where nothing but that package differs, it does without a rerun.

    Raises:
        StoreError: The store refuses.
    """
    if not found.package:
        return False
    without = {name: version for name, version in bench.lock.pins.items() if name != found.package}
    if without == {name: version for name, version in good.record.lock.pins.items() if name != found.package}:
        return True
    if not found.good or not bench.minutes:
        return False
    try:
        result = bench.compare(change, SoftwareLock(pins={**without, found.package: found.good}).pinned).result
        return _CONFIRMED.get(ComparisonDecision(result["decision"])) is change.outcome
    except StoreError:
        raise
    except ScalescopeError:  # such an environment cannot be: each is searched for itself
        return False


# ------------------------------------------------------------------ the script


def tried(bench: Reruns, alert: Alert) -> Alert:
    """An alert whose script was run, where the time for reruns is not used up."""
    if not alert.script:
        return alert
    if not bench.minutes:
        return replace(alert, shown="Not run: the time for reruns was used up.")
    bench.runner.tell(Progress(0, 0, "Running the script that shows it", notable=True))
    shows, words = bench.runner.do(SHOW, alert.script, 60 * bench.minutes)
    said = f"{'It was run, and shows it' if shows else 'It was run, and does not show it'}: {words}"
    bench.runner.tell(Progress(0, 0, said, notable=True))
    return replace(alert, shown=said)


SHOW = RunStep(
    "script", regression_script.show, timeout_s=lambda text, seconds: min(seconds, regression_script.LONGEST_S) + 60
)
