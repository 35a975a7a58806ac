"""Studies answer questions by sweeps that grow: the results so far decide what is measured next.

`STUDIES` lists them all: commands, Prefect flows, their forms, reports and ids are made from it. A module that a row
names is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from scalescope.model.plugins import Table
from scalescope.model.study import Study

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas
    from scalescope.store.store import SweepRun
    from scalescope.studies.planning import PlannedStudy
    from scalescope.studies.report.pictures import Picture
    from scalescope.studies.report.sheet import Sheet


@dataclass(frozen=True, kw_only=True)
class StudyType:
    """A row of `STUDIES`."""

    command: str  # name of the command and of the Prefect flow
    parameters_class: str  # `module:class`; the first paragraph of its docstring is the study's summary
    plan: str = ""  # module with `ask` and `check`; empty: the study has a command and a flow of its own
    report: str  # module with `sheet` and `picture`
    example: str = ""  # arguments of the command
    title: str  # heading of the report
    fine: tuple[str, str]  # style-sheet class and label of an answer that is good news
    alarm: tuple[str, str]  # style-sheet class and label of bad news, or of no answer
    exit_ok: str = "answered"  # meaning of exit status 0
    exit_finding: str = "no answer"  # meaning of exit status 1

    @property
    def function(self) -> str:
        """Name of the flow in `scalescope_flows.studies`."""
        return self.command.replace("-", "_")

    @property
    def parameters(self) -> type[Any]:
        found: type[Any] = resolve_name(self.parameters_class)
        return found

    @property
    def summary(self) -> str:
        return (self.parameters.__doc__ or "").partition("\n\n")[0]

    def ask(self, given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
        planned: PlannedStudy = resolve_name(self.plan).ask(given, store, records)
        return planned

    def check(self, given: Mapping[str, Any], store: str = "") -> None:
        resolve_name(self.plan).check(given, store)

    def sheet(self, study: Study, runs: Sequence[SweepRun]) -> Sheet:
        sheet: Sheet = resolve_name(self.report).sheet(study, runs)
        return sheet

    def picture(self, study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
        picture: Picture = resolve_name(self.report).picture(study, runs, canvas)
        return picture


def _row(name: str, reference: str, found: object) -> StudyType:
    if isinstance(found, StudyType):
        return found
    raise TypeError("expected a StudyType")


OWN = {
    "threshold": StudyType(
        command="find-threshold",
        parameters_class="scalescope.studies.threshold.parameters:ThresholdParameters",
        plan="scalescope.studies.threshold.plan",
        report="scalescope.studies.threshold.report",
        example="-w beam-pardo -a items=50..400 -a workers=300 --metric tasks",
        title="Where it jumps",
        fine=("info", "Found"),
        alarm=("medium", "Not certain"),
    ),
    "release": StudyType(
        command="find-release",
        parameters_class="scalescope.studies.release.parameters:ReleaseParameters",
        plan="scalescope.studies.release.plan",
        report="scalescope.studies.release.report",
        example="apache-beam --good 2.50.0 -w beam-pardo -a items=199 -a workers=199 -m workers_used",
        title="Since when",
        fine=("info", "Found"),
        alarm=("medium", "Not found"),
    ),
    "comparison": StudyType(
        command="compare",
        parameters_class="scalescope.studies.comparison.parameters:ComparisonParameters",
        plan="scalescope.studies.comparison.plan",
        report="scalescope.studies.comparison.report",
        example="-w beam-pardo -a items=100 -a workers=100 --a partition_size=1 --b partition_size=4",
        title="B against A",
        fine=("good", "Not slower"),
        alarm=("high", "Slower"),
        exit_ok="B is not slower",
        exit_finding="B is slower",
    ),
    "prediction": StudyType(
        command="predict",
        parameters_class="scalescope.studies.prediction.parameters:PredictionParameters",
        plan="scalescope.studies.prediction.plan",
        report="scalescope.studies.prediction.report",
        example="-w my_job.py:run -c local -a workers=1,2,4 --workers 16,64",
        title="At other sizes",
        fine=("info", "Predicted"),
        alarm=("medium", "Not to be relied on"),
    ),
    "size": StudyType(
        command="size",
        parameters_class="scalescope.studies.sizing.parameters:SizeParameters",
        plan="scalescope.studies.sizing.plan",
        report="scalescope.studies.sizing.report",
        example="latest --cores 64 --deadline 20m --as slurm",
        title="How large a cluster",
        fine=("info", "Chosen"),
        alarm=("medium", "Nothing fits"),
        exit_ok="a cluster fits",
        exit_finding="no cluster fits, or tasks take longer than a job may run",
    ),
    "nightly": StudyType(
        command="nightly",
        parameters_class="scalescope.nightly.parameters:NightlyParameters",
        report="scalescope.nightly.report",
        title="What the night showed",
        fine=("good", "No regression"),
        alarm=("high", "Regression"),
    ),
}
# Each key is a kind of study; the ids of its studies begin with it.
STUDIES: Table[StudyType] = Table("scalescope.studies", OWN, _row)
