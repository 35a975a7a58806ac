"""Studies for people and programs: thresholds, releases, comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.model.study import Study, StudyKind
from scalescope.store.store import SweepRun
from scalescope.studies.comparison import report as comparison
from scalescope.studies.release import report as release
from scalescope.studies.report.sheet import Sheet
from scalescope.studies.threshold import report as threshold

_SHEETS = {
    StudyKind.THRESHOLD: threshold.sheet,
    StudyKind.RELEASE: release.sheet,
    StudyKind.COMPARISON: comparison.sheet,
}


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    """A study as texts and tables.

    Args:
        study: As the store has it; one without an answer too.
        runs: Its runs, with their trials.
    """
    return _SHEETS[study.kind](study, runs)


def headline(study: Study) -> str:
    """Its line, or that there is none yet."""
    return study.line or "Not finished: there is no answer yet. The same command as before continues it."
