"""Runs an isolation: the sweep it may begin with, its steps, the confirmation of its script, and its files."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scalescope import workloads
from scalescope.analysis.summary import order
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField, UsageError
from scalescope.isolation import bug_report, notebook, reproducer
from scalescope.isolation.parameters import IsolationParameters
from scalescope.isolation.reduce import ReductionStep, SymptomReading, reduce
from scalescope.isolation.removals import Setting, numbers, removals
from scalescope.isolation.reproducer import Confirmation, Reproducer
from scalescope.isolation.result import Isolation, Seen
from scalescope.isolation.setting_measurer import SettingMeasurer, graph_of
from scalescope.model import fields, parameters
from scalescope.model.finding import Finding
from scalescope.model.sweep import digest
from scalescope.model.trial import Trial
from scalescope.model.words import plural
from scalescope.report import files, html
from scalescope.run import orchestrator, run_names
from scalescope.run.output_paths import OutputPath, WrittenFile
from scalescope.run.parameters import Storage
from scalescope.run.progress import Progress
from scalescope.run.progress_bar import shown
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store, SweepRun
from scalescope.studies import others_code
from scalescope.studies.symptom import Symptom, finding_symptom, first_finding, metric_symptom, worst_showing

WHAT = "result"  # what error messages call the folder to write
NOTEBOOK = "notebook.md"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Isolated:
    """Result of an isolation: the search, the script and the files written."""

    isolation: Isolation
    reproducer: Reproducer
    confirmation: Confirmation | None  # None without a script
    folder: str  # absolute path, or address
    files: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.isolation.run_id

    @property
    def outcome(self) -> tuple[str, str]:
        return "", notebook.ending(self.isolation)

    @property
    def confirmed(self) -> bool:
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def doubt(self) -> str:
        """Reason why there is no confirmed script; empty if there is one."""
        return self.reproducer.problem if self.confirmation is None else self.confirmation.problem

    def to_mapping(self) -> dict[str, object]:
        return {
            **self.isolation.to_mapping(),
            "confirmed": self.confirmed,
            "doubt": self.doubt,
            "folder": self.folder,
            "files": list(self.files),
        }


def check(given: Mapping[str, Any]) -> tuple[IsolationParameters, Storage]:
    parameters.reject_unknown(given, IsolationParameters, Storage)
    kept = parameters.check(Storage, parameters.part(Storage, given))
    asked = parameters.check(IsolationParameters, parameters.part(IsolationParameters, given))
    fields.text("folder", asked.folder)
    if asked.metric:
        if asked.finding:
            raise InvalidField("metric", asked.metric, "only one of metric and finding")
        metric_symptom(asked.metric)
    return asked, kept


def isolate(given: Mapping[str, Any], runner: Runner | None = None) -> Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Every step is a run in the store: an isolation that was stopped continues when it is started again with the same
    parameters.
    """
    loaded, records = orchestrator.load_saved(given)
    asked, kept = check(loaded)
    with shown(runner) as runner, Store.open(kept.store, records) as store:
        place = OutputPath.of("folder", asked.folder, store, runner)
        if asked.sweep and not place.among_records:  # check before the sweep, which takes long
            files.check_folder(asked.folder, WHAT)
        run = run_sweep({**asked.sweep, "store": given.get("store", "")}, runner).run_id if asked.sweep else asked.run
        origin = store.run(run)
        others_code.check_can_run_again(origin)
        others_code.check(origin, others_code=asked.others_code)
        runner.label([f"run:{origin.id}", f"workload:{origin.sweep.workload}"])
        symptom, finding, trial = choose(origin, asked)
        folder = place.made(origin.id)
        files.check_folder(folder, WHAT)  # refuse an unwritable folder before measuring
        start = Setting.of(origin.sweep, trial.point, workloads.load(origin.sweep.workload))
        teller = _Teller(asked.max_trials, runner)
        with SettingMeasurer(
            store,
            address=(kept.store, records),
            isolation=digest([origin.id, symptom.words, trial.key, time.time() if kept.fresh else 0]),
            symptom=symptom,
            start=(start, trial),
            folder=folder,
            says=teller.says,
        ) as bench:
            isolation = _search(origin, asked, finding, (start, trial), bench, teller)
        result = _hand_over(isolation, symptom, folder, runner)
        result = replace(result, files=(*result.files, *_report(store, origin, folder)))
        teller.over(result, store)
    return result


def choose(origin: SweepRun, asked: IsolationParameters) -> tuple[Symptom, Finding | None, Trial]:
    """The symptom, its finding (None if it is a comparison), and the trial to begin with."""
    if asked.metric:
        metric = metric_symptom(asked.metric)
        return metric, None, worst_showing(metric, origin.sweep, origin.trials)
    finding = first_finding(origin.verdict or diagnose(origin.sweep, origin.trials), asked.finding)
    symptom, start = finding_symptom(origin.sweep, origin.trials, finding)
    return symptom, finding, start


def try_out(bench: SettingMeasurer, words: str, setting: Setting) -> SymptomReading:
    return bench.measure(setting)


def _kept(reading: SymptomReading) -> tuple[str, str]:
    return "Kept" if reading.shows else "Not measured" if reading.problem else "Put back", reading.text


TRY = RunStep("try", try_out, lambda bench, words, setting: words, outcome=_kept)
CONFIRM = RunStep("confirm", reproducer.confirm, lambda text: "confirm the reproducer")


class _Teller:
    """Reports the progress of an isolation to a runner."""

    def __init__(self, total: int, runner: Runner) -> None:
        self.done, self._total, self.runner = 0, total, runner

    def says(self, text: str, *, notable: bool = False) -> None:
        self.runner.tell(Progress(self.done, self._total, text, notable=notable))

    def tried(self, step: ReductionStep[Setting]) -> None:
        self.done += 1
        self.says(notebook.line(step), notable=True)

    def over(self, result: Isolated, store: Store) -> None:
        written = [WrittenFile.at(f"{result.folder}/{name}", store) for name in result.files]
        for name, text in _pages(result).items():
            self.runner.publish(partial(_publication, result, name, text, written))
        self.says(notebook.ending(result.isolation), notable=True)
        self.says(f"Files: {written[-1].link or result.folder}", notable=True)


def _search(
    origin: SweepRun,
    asked: IsolationParameters,
    finding: Finding | None,
    start: tuple[Setting, Trial],
    bench: SettingMeasurer,
    teller: _Teller,
) -> Isolation:
    setting, trial = start
    reduction = reduce(
        setting,
        moves=[*removals(setting, workloads.load, bench.work_s), *bench.moves()],
        numbers=numbers(),
        measure=lambda words, setting: teller.runner.do(TRY, bench, words, setting),
        spent=_budget(asked),
        tried=teller.tried,
    )
    seen = sorted((each for each in origin.trials if not each.warmup), key=lambda each: order(each.point))
    return Isolation(
        run_id=origin.id,
        sweep=origin.sweep,
        seen=tuple(Seen(each, bench.symptom.shows(origin.sweep, each)) for each in seen),
        finding=finding,
        symptom=bench.symptom.words,
        start=trial,
        reduction=reduction,
        trial=bench.trials[reduction.state],
        notes=tuple(bench.notes),
    )


def _budget(asked: IsolationParameters) -> Callable[[int], str]:
    until = time.monotonic() + 60 * asked.minutes

    def spent(done: int) -> str:
        if done >= asked.max_trials:
            return f"the budget of {plural(asked.max_trials, 'trial')} is used up"
        return f"the budget of {asked.minutes:g} minutes is used up" if time.monotonic() >= until else ""

    return spent


def _hand_over(isolation: Isolation, symptom: Symptom, folder: str, runner: Runner) -> Isolated:
    written = reproducer.write(isolation, symptom, graph_of(isolation.setting))
    confirmation = runner.do(CONFIRM, written.text) if written.text else None
    found = Isolated(isolation, written, confirmation, folder)
    texts = {**_pages(found), "isolation.json": json.dumps(isolation.to_mapping(), indent=2)}
    scripts = {True: "reproducer.py", False: "unconfirmed-reproducer.py"}
    for name in scripts.values():  # remove scripts of an earlier isolation
        files.remove(f"{folder}/{name}", WHAT)
    if written.text:
        texts[scripts[found.confirmed]] = written.text
    for name, text in texts.items():
        files.write(f"{folder}/{name}", text, WHAT)
    return replace(found, files=tuple(texts))


def _pages(found: Isolated) -> dict[str, str]:
    return {
        NOTEBOOK: notebook.to_markdown(found.isolation),
        "bug-report.md": bug_report.write(found.isolation, found.reproducer, found.confirmation),
    }


def _report(store: Store, origin: SweepRun, folder: str) -> tuple[str, ...]:
    try:
        html.write(f"{folder}/report.html", origin, store.tables)
    except UsageError as error:
        logger.warning("There is no report.html: %s", error)
        return ()
    return ("report.html",)


def _publication(result: Isolated, name: str, text: str, written: Sequence[WrittenFile]) -> Publication:
    title = f"{name.removesuffix('.md')} of {run_names.workload(result.isolation.sweep.workload)}"
    if name == NOTEBOOK:  # paths on this machine do not belong in the bug report, which goes to others
        text += "\n**Files**\n\n" + "".join(f"- {each.markdown()}\n" for each in written)
    return Publication(title, result.isolation.sweep.id, notebook.ending(result.isolation), text)
