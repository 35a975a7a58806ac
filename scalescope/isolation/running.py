"""A whole isolation: the sweep that it may begin with, its steps, the script that is confirmed, its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scalescope.isolation import notebook, reproducer, search
from scalescope.isolation.parameters import IsolationParameters
from scalescope.isolation.reduce import ReductionStep as Tried
from scalescope.isolation.reduce import SymptomReading
from scalescope.isolation.removals import Setting
from scalescope.isolation.search import Isolated
from scalescope.isolation.setting_measurer import SettingMeasurer
from scalescope.model import parameters
from scalescope.report import files
from scalescope.run import orchestrator, run_names
from scalescope.run.output_paths import OutputPath, WrittenFile
from scalescope.run.parameters import Storage
from scalescope.run.progress import Progress
from scalescope.run.progress_bar import shown
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store
from scalescope.studies import others_code


def check(given: Mapping[str, Any]) -> tuple[IsolationParameters, Storage]:
    parameters.reject_unknown(given, IsolationParameters, Storage)
    kept = parameters.check(Storage, parameters.part(Storage, given))
    return search.check(parameters.part(IsolationParameters, given)), kept


def isolate(given: Mapping[str, Any], runner: Runner | None = None) -> Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Every step is a run in the store: an isolation that was stopped continues when it is started again with the same
    parameters.
    """
    loaded, records = orchestrator.load_saved(given)
    asked, kept = check(loaded)
    with shown(runner) as runner, Store.open(kept.store, records) as store:
        place = OutputPath.of("folder", asked.folder, store, runner)
        if not place.among_records:
            files.check_folder(asked.folder, search.WHAT)
        run = run_sweep({**asked.sweep, "store": given.get("store", "")}, runner).run_id if asked.sweep else asked.run
        origin = store.run(run)
        others_code.check(origin, others_code=asked.others_code)
        runner.label([f"run:{origin.id}", f"workload:{origin.sweep.workload}"])
        teller = _Teller(asked.max_trials, runner)
        result = search.isolate(
            store,
            origin,
            replace(asked, folder=place.made(origin.id)),
            address=(kept.store, records),
            fresh=kept.fresh,
            step=lambda bench, words, setting: runner.do(TRY, bench, words, setting),
            confirm=lambda text: runner.do(CONFIRM, text),
            tried=teller.tried,
            says=teller.says,
        )
        written = [WrittenFile.at(f"{result.folder}/{name}", store) for name in result.files]
        for name, text in search.pages(result.isolation, result.reproducer, result.confirmation).items():
            runner.publish(partial(_publication, result, name, text, written))
        ending, where = notebook.ending(result.isolation), written[-1].link or result.folder
        runner.tell(Progress(teller.done, asked.max_trials, ending, notable=True))
        runner.tell(Progress(teller.done, asked.max_trials, f"Files: {where}", notable=True))
    return result


def try_out(bench: SettingMeasurer, words: str, setting: Setting) -> SymptomReading:
    return bench.measure(setting)


def _kept(reading: SymptomReading) -> tuple[str, str]:
    return "Kept" if reading.shows else "Not measured" if reading.problem else "Put back", reading.text


TRY = RunStep("try", try_out, lambda bench, words, setting: words, outcome=_kept)
CONFIRM = RunStep("confirm", reproducer.confirm, lambda text: "confirm the reproducer")


class _Teller:
    def __init__(self, total: int, runner: Runner) -> None:
        self.done, self._total, self._runner = 0, total, runner

    def says(self, text: str) -> None:
        self._runner.tell(Progress(self.done, self._total, text))

    def tried(self, step: Tried[Setting]) -> None:
        self.done += 1
        self._runner.tell(Progress(self.done, self._total, notebook.line(step), notable=True))


def _publication(result: Isolated, name: str, text: str, written: Sequence[WrittenFile]) -> Publication:
    title = f"{name.removesuffix('.md')} of {run_names.workload(result.isolation.sweep.workload)}"
    if name == search.NOTEBOOK:  # a bug report goes to others, and says nothing of this machine
        text += "\n**Files**\n\n" + "".join(f"- {each.markdown()}\n" for each in written)
    return Publication(title, result.isolation.sweep.id, notebook.ending(result.isolation), text)
