"""How a symptom is isolated: check, choose, search, hand over. A flow gives its tasks as functions."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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
from scalescope.store.store import Store, SweepRun
from scalescope.studies.symptom import Symptom, finding_symptom, first_finding, metric_symptom, worst_showing

# What is written, in errors.
WHAT = "result"
NOTEBOOK = "notebook.md"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Isolated:
    """What came of it."""

    isolation: Isolation
    reproducer: Reproducer
    confirmation: Confirmation | None  # None without a script
    folder: str  # a path from the root, or an address
    files: tuple[str, ...]

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
        """Why there is no confirmed script; empty if there is one."""
        return self.reproducer.problem if self.confirmation is None else self.confirmation.problem

    def to_mapping(self) -> dict[str, object]:
        return {
            **self.isolation.to_mapping(),
            "confirmed": self.confirmed,
            "doubt": self.doubt,
            "folder": self.folder,
            "files": list(self.files),
        }


def check(given: Mapping[str, object]) -> IsolationParameters:
    asked = parameters.check(IsolationParameters, given)
    fields.text("folder", asked.folder)
    if asked.metric:
        if asked.finding:
            raise InvalidField("metric", asked.metric, "only one of metric and finding")
        metric_symptom(asked.metric)
    return asked


def choose(origin: SweepRun, asked: IsolationParameters) -> tuple[Symptom, Finding | None, Trial]:
    """What must stay, the finding that it stands for (None for a comparison), and the trial to begin with."""
    if asked.metric:
        metric = metric_symptom(asked.metric)
        return metric, None, worst_showing(metric, origin.sweep, origin.trials)
    finding = first_finding(origin.verdict or diagnose(origin.sweep, origin.trials), asked.finding)
    symptom, start = finding_symptom(origin.sweep, origin.trials, finding)
    return symptom, finding, start


def isolate(
    store: Store,
    origin: SweepRun,
    asked: IsolationParameters,
    *,
    address: tuple[str, str] = ("", ""),
    fresh: bool = False,
    step: Callable[[SettingMeasurer, str, Setting], SymptomReading] = lambda bench, _, setting: bench.measure(setting),
    confirm: Callable[[str], Confirmation] = reproducer.confirm,
    tried: Callable[[ReductionStep[Setting]], None] = lambda step: None,
    says: Callable[[str], None] = lambda text: None,
) -> Isolated:
    """Isolate a symptom of a run, write a script that shows it, run that, and write down what is known.

    `address` is that of the store and of its raw records. `fresh` measures anew what an earlier isolation of the same
    symptom has measured. `step` measures one setting, given words for what is tried.
    """
    (symptom, finding, trial), folder = choose(origin, asked), files.absolute(asked.folder)
    files.check_folder(folder, WHAT)  # what cannot be written later is refused now
    start = Setting.of(origin.sweep, trial.point, workloads.load(origin.sweep.workload))
    with SettingMeasurer(
        store,
        address=address,
        isolation=digest([origin.id, symptom.words, trial.key, time.time() if fresh else 0]),
        symptom=symptom,
        start=(start, trial),
        folder=folder,
        says=says,
    ) as bench:
        reduction = reduce(
            start,
            moves=[*removals(start, workloads.load, bench.work_s), *bench.moves()],
            numbers=numbers(),
            measure=lambda words, setting: step(bench, words, setting),
            spent=_budget(asked),
            tried=tried,
        )
        seen = sorted((each for each in origin.trials if not each.warmup), key=lambda each: order(each.point))
        isolation = Isolation(
            run_id=origin.id,
            sweep=origin.sweep,
            seen=tuple(Seen(each, symptom.shows(origin.sweep, each)) for each in seen),
            finding=finding,
            symptom=symptom.words,
            start=trial,
            reduction=reduction,
            trial=bench.trials[reduction.state],
            notes=tuple(bench.notes),
        )
    result = _hand_over(isolation, symptom, folder, confirm)
    return replace(result, files=(*result.files, *_report(store, origin, folder)))


def _budget(asked: IsolationParameters) -> Callable[[int], str]:
    until = time.monotonic() + 60 * asked.minutes

    def spent(done: int) -> str:
        if done >= asked.max_trials:
            return f"the budget of {plural(asked.max_trials, 'trial')} is used up"
        return f"the budget of {asked.minutes:g} minutes is used up" if time.monotonic() >= until else ""

    return spent


def _hand_over(isolation: Isolation, symptom: Symptom, folder: str, confirm: Callable[[str], Confirmation]) -> Isolated:
    written = reproducer.write(isolation, symptom, graph_of(isolation.setting))
    confirmation = confirm(written.text) if written.text else None
    confirmed = confirmation is not None and confirmation.confirmed
    texts = {**pages(isolation, written, confirmation), "isolation.json": json.dumps(isolation.to_mapping(), indent=2)}
    scripts = {True: "reproducer.py", False: "unconfirmed-reproducer.py"}
    for name in scripts.values():  # of an earlier isolation
        files.remove(f"{folder}/{name}", WHAT)
    if written.text:
        texts[scripts[confirmed]] = written.text
    for name, text in texts.items():
        files.write(f"{folder}/{name}", text, WHAT)
    return Isolated(isolation, written, confirmation, folder, tuple(texts))


def pages(isolation: Isolation, written: Reproducer, confirmation: Confirmation | None) -> dict[str, str]:
    return {
        NOTEBOOK: notebook.to_markdown(isolation),
        "bug-report.md": bug_report.write(isolation, written, confirmation),
    }


def _report(store: Store, origin: SweepRun, folder: str) -> tuple[str, ...]:
    try:
        html.write(f"{folder}/report.html", origin, store.tables)
    except UsageError as error:
        logger.warning("There is no report.html: %s", error)
        return ()
    return ("report.html",)
