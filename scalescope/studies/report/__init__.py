"""Reports of studies, for a terminal, a page and Prefect."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.model.study import Study
from scalescope.store.store import SweepRun
from scalescope.studies import STUDIES
from scalescope.studies.report.sheet import Sheet


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    return STUDIES[study.kind].sheet(study, runs)


def headline(study: Study) -> str:
    """The answer of a study, or a sentence that there is none yet."""
    return study.line or "Not finished: there is no answer yet. Run the same command again to continue."
