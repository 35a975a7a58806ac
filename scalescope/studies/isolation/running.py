"""A whole isolation: the sweep that it may begin with, its steps, the script that is confirmed, its files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalescope.errors import UsageError
from scalescope.model import parameters
from scalescope.report import html
from scalescope.run import orchestrator
from scalescope.run.parameters import Storage
from scalescope.run.progress import Progress
from scalescope.run.runner import Publication, Runner, Step
from scalescope.run.sweep import run_sweep
from scalescope.run.syntax import names_store
from scalescope.store.store import Store, SweepRun
from scalescope.studies.isolation import notebook, reproducer, search
from scalescope.studies.isolation.bench import Bench
from scalescope.studies.isolation.parameters import IsolationParameters
from scalescope.studies.isolation.reduce import Reading
from scalescope.studies.isolation.reduce import Step as Tried
from scalescope.studies.isolation.removals import Setting
from scalescope.studies.isolation.search import Asked, Isolated

PUBLISHED = ("notebook", "bug-report")
"""Files that an orchestrator shows as pages."""

logger = logging.getLogger(__name__)


def check(given: Mapping[str, Any]) -> tuple[Asked, IsolationParameters, Storage]:
    """Check what can be checked without the run.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    parameters.reject_unknown(given, IsolationParameters, Storage)
    asked = parameters.check(IsolationParameters, parameters.part(IsolationParameters, given))
    kept = parameters.check(Storage, parameters.part(Storage, given))
    limits = {name: getattr(asked, name) for name in ("finding", "metric", "max_trials", "minutes", "folder")}
    return search.check(**limits, fresh=kept.fresh), asked, kept


def isolate(given: Mapping[str, Any], runner: Runner | None = None) -> Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Expensive things are removed one by one, and a removal is kept only while the symptom stays: a real cluster, real
    compute and file I/O, settings, stages, workers and items. Every step is a run in the store, so that an isolation
    that was stopped continues when it is started again with the same parameters.

    Args:
        given: Parameters of the isolation and of `Storage` by name.
        runner: Carries out the steps; by default this process.

    Returns:
        The isolated trial, the script, and whether it was seen to show the symptom.

    Raises:
        InvalidField: A parameter is not allowed, or the run has no such symptom.
        UsageError: There is no such run.
        StoreError: Results could not be kept.
    """
    runner = runner or Runner()
    asked, question, kept = check(given)
    run = run_sweep({**question.sweep, "store": kept.store}, runner).run_id if question.sweep else question.run
    address, records = orchestrator.needed().store(kept.store) if names_store(kept.store) else (kept.store, "")
    with Store.open(address, records) as store:
        origin = store.run(run)
        chosen = search.choose(origin, asked)
        search.prepare(asked.folder)
        runner.label([f"run:{origin.id}", f"workload:{origin.sweep.workload}"])
        teller = _Teller(asked.max_trials, runner)
        isolation = search.search(
            store,
            origin,
            asked,
            chosen,
            address=(address, records),
            step=lambda bench, words, setting: runner.do(TRY, bench, words, setting),
            tried=teller.tried,
            says=teller.says,
        )
        result = search.hand_over(
            isolation, chosen.symptom, asked.folder, confirm=lambda text: runner.do(CONFIRM, text)
        )
        result = replace(result, files=(*result.files, *_report(store, origin, asked.folder)))
        for name in PUBLISHED:
            runner.publish(lambda name=name: _publication(result, name))  # type: ignore[misc]
    runner.tell(Progress(teller.done, asked.max_trials, notebook.ending(isolation), notable=True))
    return result


def try_out(bench: Bench, words: str, setting: Setting) -> Reading:
    """Measure one step."""
    return bench.measure(setting)


def _kept(reading: Reading) -> tuple[str, str]:
    return "Kept" if reading.shows else "Not measured" if reading.problem else "Put back", reading.text


TRY = Step("try", try_out, lambda bench, words, setting: words, outcome=_kept)
CONFIRM = Step("confirm", reproducer.confirm, lambda text: "confirm the reproducer")


class _Teller:
    """Tells how far an isolation is."""

    def __init__(self, total: int, runner: Runner) -> None:
        self.done = 0
        self._total = total
        self._runner = runner

    def says(self, text: str) -> None:
        """The driver begins something."""
        self._runner.tell(Progress(self.done, self._total, text))

    def tried(self, step: Tried[Setting]) -> None:
        """A step has ended, and is saved."""
        self.done += 1
        self._runner.tell(Progress(self.done, self._total, notebook.line(step), notable=True))


def _publication(result: Isolated, name: str) -> Publication:
    text = (result.folder / f"{name}.md").read_text(encoding="utf-8")
    return Publication(f"scalescope-{name}-{result.isolation.sweep.id}", notebook.ending(result.isolation), text)


def _report(store: Store, origin: SweepRun, folder: Path) -> tuple[str, ...]:
    """Write the report of the run that it all began with, where what it needs is installed."""
    try:
        html.write(folder / "report.html", origin, store.tables)
    except UsageError as error:
        logger.warning("There is no report.html: %s", error)
        return ()
    return ("report.html",)
