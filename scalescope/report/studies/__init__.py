"""Studies for people and programs: thresholds, releases, comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.model.study import Study, StudyKind
from scalescope.report.studies import comparison, release, threshold
from scalescope.report.studies.sheet import Sheet
from scalescope.store.store import SweepRun

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
