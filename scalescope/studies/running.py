"""Carries out a study: its sweeps, its answer, its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scalescope.environments.git import with_commits
from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.study import Study
from scalescope.model.sweep import digest
from scalescope.report import notebook
from scalescope.report.table import html_text
from scalescope.run import orchestrator, run_names
from scalescope.run.output_paths import OutputPath, WrittenFile
from scalescope.run.parameters import Reported
from scalescope.run.progress import Progress
from scalescope.run.progress_bar import shown
from scalescope.run.request import RunRequest
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.sweep import JUDGE_TIMEOUT_S, carry_out, where_report
from scalescope.store.store import Store, SweepRun
from scalescope.studies import STUDIES
from scalescope.studies.planning import PlannedStudy, StudyAnswer
from scalescope.studies.report import export, headline, sheet
from scalescope.studies.report.html import write_study

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class StudyResult:
    """A study with its answer and its runs, including their trials."""

    study: Study
    runs: tuple[SweepRun, ...]

    @property
    def study_id(self) -> str:
        return self.study.id

    @property
    def line(self) -> str:
        return self.study.line

    @property
    def alarm(self) -> bool:
        return self.study.alarm

    @property
    def result(self) -> Mapping[str, Any]:
        return self.study.result

    def code(self, form: str = "") -> str:
        """Code for the cluster, by default in the form that fits the record; raises `InvalidField` if there is none."""
        known = self.result.get("code") or {}
        if (form or self.result.get("form")) not in known:
            allowed = f"a form that this answer has: {', '.join(known) or 'none, since no cluster fits'}"
            raise InvalidField("form", form, allowed)
        return str(known[form or self.result["form"]])

    @property
    def outcome(self) -> tuple[str, str]:
        return ("Finding" if self.alarm else ""), self.line

    def to_dataframe(self) -> pandas.DataFrame:
        """The longest list in `result`, such as the sizes of a prediction, one row per entry.

        Raises:
            UsageError: pandas is not installed.
        """
        lists = [each for each in self.result.values() if isinstance(each, list | tuple)]
        return notebook.table(list(max(lists, key=len, default=())))

    def _repr_html_(self) -> str:
        table = sheet(self.study, self.runs).table
        line = f"<p><strong>{html_text(headline(self.study))}</strong></p>"
        return line if table is None else line + notebook.html_table(table)


def check(kind: str, given: Mapping[str, Any]) -> None:
    rest, kept = _split(given)
    STUDIES[kind].check(rest, kept.store)


def run_study(kind: str, given: Mapping[str, Any], runner: Runner | None = None, *, follows: str = "") -> StudyResult:
    """Run the sweeps of a study and answer it; a study that was stopped continues with the trials that are missing.

    Args:
        kind: Key of `STUDIES`.
        given: Parameters of the study and of `Reported`, by name.
        runner: Carries out the steps; by default this process, with a progress bar.
        follows: Id of the study that led to this one; not used if a run is given in `given`.
    """
    loaded, records = orchestrator.load_saved(given)
    rest, kept = _split(with_commits(loaded))
    inquiry = STUDIES[kind].ask(rest, kept.store, records)
    labels = [f"study:{inquiry.kind}"]
    labels += [f"workload:{each.sweep.workload}" for each in inquiry.requests if isinstance(each, RunRequest)]
    with shown(runner) as runner, Store.open(kept.store, records) as store:
        place = OutputPath.of_report(kept.report, store, runner)
        led_to_it = inquiry.follows or follows
        study = store.studies.begin(inquiry.kind, inquiry.question, follows=led_to_it, fresh=kept.fresh)
        runner.label([*labels, f"study:{study.id}"])
        runs: list[SweepRun] = []
        for each in inquiry.requests:
            if each is inquiry.requests[-1] and (line := inquiry.so_far(runs)):
                runner.tell(Progress(0, 0, line, notable=True, kept=True))
            request = each if isinstance(each, RunRequest) else each(runs, store, store.folder(study.id))
            if request is not None:
                runs.append(run_of(study, request, store, runner))
        answer = runner.do(JUDGE, inquiry, runs)
        store.studies.finish(study.id, answer.line, answer.result, alarm=answer.alarm)
        study = store.studies.get(study.id)
        written = place.write(study.id, runner, partial(runner.do, REPORT, study, runs)) if place else None
        runner.publish(lambda: publication(study, runs, written))
    return StudyResult(study, tuple(runs))


def judge(inquiry: PlannedStudy, runs: Sequence[SweepRun]) -> StudyAnswer:
    return inquiry.answer(runs)


def write_report(study: Study, runs: Sequence[SweepRun], path: str) -> None:
    write_study(path, study, runs)


JUDGE = RunStep("answer", judge, timeout_s=lambda *_: JUDGE_TIMEOUT_S)
REPORT = RunStep(
    "report", write_report, lambda study, runs, path: f"report {study.id}", timeout_s=lambda *_: JUDGE_TIMEOUT_S
)


def publication(study: Study, runs: Sequence[SweepRun], report: WrittenFile | None = None) -> Publication:
    """The text to publish for a study; a later study of the same question replaces it with a new version."""
    text = export.to_markdown(study, runs) + where_report(report, study.id)
    title = run_names.brief_study(study.kind, study.question)
    return Publication(title, digest(study.question), headline(study), text, export.to_rows(study, runs))


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], Reported]:
    kept = parameters.part(Reported, given)
    return {name: value for name, value in given.items() if name not in kept}, parameters.check(Reported, kept)


def run_of(study: Study, request: RunRequest, store: Store, runner: Runner) -> SweepRun:
    """The finished run of one sweep of a study, from the store or run now."""
    for run_id in study.runs:
        run = store.run(run_id)
        if run.sweep.id == request.sweep.id and run.finished_at and run.verdict is not None:
            return run
    return carry_out(replace(request, study=study.id), store, runner).run
