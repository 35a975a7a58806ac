"""Studies: questions of one or more sweeps that grow, where what was measured decides what to measure next.

A study has a folder: `parameters` declares what it may be given, `plan` checks that and says what to measure, `judge`
says what was found, `report` shows it. `STUDIES` is the table of them. An isolation (`scalescope.isolation`) is
not among them: it is a search through many small sweeps, and what comes of it is files. A night (`scalescope.nightly`)
begins others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from scalescope.model.study import Study, StudyKind

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas
    from scalescope.store.store import SweepRun
    from scalescope.studies.planning import PlannedStudy
    from scalescope.studies.report.pictures import Picture
    from scalescope.studies.report.sheet import Sheet


@dataclass(frozen=True)
class StudyType:
    """One kind of study, with all that belongs to it; its modules are imported when they are needed.

    Attributes:
        kind: Also the name of its folder.
        flow: Name of the command and of the Prefect flow.
        title: Heading of its report.
        found: What it is in a word where there is no alarm.
        not_found: Where there is one.
        fine_level: Class of the style sheet for the first.
        alarm_level: For the second.
        package: Where its modules are; by default the folder here that is named like it.
    """

    kind: StudyKind
    flow: str
    title: str
    found: str
    not_found: str
    fine_level: str
    alarm_level: str
    package: str = ""

    @property
    def parameters(self) -> type[Any]:
        """What it may be given; the first sentence of its docstring says what the study is for."""
        found: type[Any] = getattr(self._module("parameters"), f"{self.kind.capitalize()}Parameters")
        return found

    def ask(self, given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
        """Check parameters completely; nothing is measured.

        Args:
            given: Parameters by name.
            store: Address of the store.
            records: Address of the raw records.

        Raises:
            ScalescopeError: The first thing that is wrong.
        """
        inquiry: PlannedStudy = self._module("plan").ask(given, store, records)
        return inquiry

    def check(self, given: Mapping[str, Any], store: str = "") -> None:
        """Check what can be checked at once: without the package index.

        Raises:
            ScalescopeError: The first thing that is wrong.
        """
        self._module("plan").check(given, store)

    def sheet(self, study: Study, runs: Sequence[SweepRun]) -> Sheet:
        """A study of this kind as texts and tables.

        Args:
            study: As the store has it; one without an answer too.
            runs: Its runs, with their trials.
        """
        sheet: Sheet = self._module("report").sheet(study, runs)
        return sheet

    def picture(self, study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
        """What the page of a study shows besides its table; charts are drawn on the canvas."""
        picture: Picture = self._module("report").picture(study, runs, canvas)
        return picture

    def _module(self, name: str) -> Any:
        return import_module(f"{self.package or f'scalescope.studies.{self.kind}'}.{name}")


STUDIES: Mapping[StudyKind, StudyType] = {
    each.kind: each
    for each in (
        StudyType(
            StudyKind.THRESHOLD,
            flow="find-threshold",
            title="Where it jumps",
            found="Found",
            not_found="Not certain",
            fine_level="info",
            alarm_level="medium",
        ),
        StudyType(
            StudyKind.RELEASE,
            flow="find-release",
            title="Since when",
            found="Found",
            not_found="Not found",
            fine_level="info",
            alarm_level="medium",
        ),
        StudyType(
            StudyKind.COMPARISON,
            flow="compare",
            title="B against A",
            found="Not slower",
            not_found="Slower",
            fine_level="good",
            alarm_level="high",
        ),
        StudyType(
            StudyKind.NIGHTLY,
            flow="nightly",
            title="What the night showed",
            found="No regression",
            not_found="Regression",
            fine_level="good",
            alarm_level="high",
            package="scalescope.nightly",
        ),
    )
}
"""By kind."""
