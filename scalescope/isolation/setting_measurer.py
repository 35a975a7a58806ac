"""Measures the settings of an isolation one after the other, each as a run in the store, without Prefect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import TracebackType
from typing import Self

from scalescope import workloads
from scalescope.analysis.graph_from_records import recorded_graph
from scalescope.errors import CaptureError, DriverError, InfrastructureError
from scalescope.isolation.reduce import Move, SymptomReading
from scalescope.isolation.removals import QUICK_S, Setting, checked, sentence
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.model.run_facts import STEP_OF
from scalescope.model.sweep import digest
from scalescope.model.trial import Trial
from scalescope.report import files
from scalescope.run.drivers import Drivers
from scalescope.run.request import RunRequest, check
from scalescope.run.signals import shielded
from scalescope.run.sweep import abort, analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.schema import RunState
from scalescope.store.store import Store
from scalescope.studies.symptom import Symptom
from scalescope.workloads.replay import NAME as REPLAY


class SettingMeasurer:
    """Measures settings, each as a run in the store, and remembers the results. A context manager.

    A step that the same isolation measured with the same packages is taken from the store. The cluster stays open as
    long as the next setting can use it.
    """

    # Not a dataclass, because Prefect would search the fields of a dataclass that is passed to a task.
    def __init__(
        self,
        store: Store,  # the caller closes it
        *,
        address: tuple[str, str],  # addresses of the store and of its raw records
        isolation: str,  # id of the isolation
        symptom: Symptom,
        start: tuple[Setting, Trial],
        folder: str,  # path or address for recorded graphs
        says: Callable[[str], None],  # called with a sentence whenever the driver begins a phase
    ) -> None:
        self.store, self.address, self.isolation = store, address, isolation
        self.symptom, self.folder, self.says = symptom, folder, says
        self.trials = dict([start])
        self.notes: dict[str, None] = {}
        self._drivers: Drivers | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with shielded():
            drivers, self._drivers = self._drivers, None
            if drivers is not None:
                drivers.close()

    def work_s(self, setting: Setting) -> float:
        """Recorded work T1 in seconds; 0 if nothing was measured."""
        metrics = self.trials[setting].metrics
        return 0.0 if metrics is None else metrics.work_s

    def measure(self, setting: Setting) -> SymptomReading:
        if problem := checked(setting):
            return SymptomReading(False, "not allowed", problem)
        try:
            trial = self._known(setting) or self._run(setting)
        except InfrastructureError as error:
            if self._drivers is not None and self._drivers.stopped:
                raise
            return SymptomReading(False, "no cluster", str(error).partition("\n")[0])
        self.trials[setting] = trial
        shows = self.symptom.shows(setting.sweep, trial)
        problem = "" if shows or trial.counts else trial.reason.partition("\n")[0]
        return SymptomReading(shows, sentence(trial), problem)

    def moves(self) -> list[Move[Setting]]:
        return [self._to_replay, *(partial(_quicker_replay, seconds) for seconds in QUICK_S)]

    # ---------------------------------------------------------------- running

    def _known(self, setting: Setting) -> Trial | None:
        from scalescope.capture.host import packages

        for run in self.store.runs(sweep=setting.sweep.id, limit=5):
            same = run.facts.get(STEP_OF) == self.isolation and run.facts.get("packages") == packages()
            if same and run.state is RunState.COMPLETE and run.workload_version == setting.workload.version:
                return run.trials[0]
        return None

    def _run(self, setting: Setting) -> Trial:
        store, records = self.address
        request = check({**setting.sweep.to_mapping(), "store": store}, records=records)
        run, waiting = begin(request, self.store, facts={STEP_OF: self.isolation})
        try:
            run_trials(self._ready(request, run.id), waiting, hold=True)
            analyse(self.store, run.id)
        except BaseException as error:
            abort(self.store, run.id, error)
            raise
        return self.store.run(run.id).trials[0]

    def _ready(self, request: RunRequest, run_id: str) -> Drivers:
        if self._drivers is None:
            self._drivers = Drivers(request, run_id, self.store, says=self.says)
        elif self._drivers.stopped:
            raise DriverError("the isolation was stopped")
        self._drivers.request, self._drivers.run_id = request, run_id
        return self._drivers

    # ---------------------------------------------------------------- replays

    def _to_replay(self, setting: Setting) -> tuple[str, Setting] | None:
        if setting.workload.name == REPLAY or setting.workload.modelled:
            return None
        try:
            graph = recorded_graph(self.store.tables(self.trials[setting]), nested=False)
        except CaptureError as error:
            self.notes[f"{setting.workload.name} cannot be replayed: {error.what}"] = None
            return None
        words = f"{setting.workload.name} → replay of its graph: sleeps of the recorded durations"
        return words, self.replay(setting, graph)

    def replay(self, setting: Setting, graph: RecordedGraph) -> Setting:
        text = graph.to_json()
        place = f"{self.folder}/graph-{digest(text)}.json"
        files.write(place, text, "recorded graph")
        workload = workloads.load(REPLAY)
        point = replace(setting.point, params=workload.bind({"graph": place, "tasks": len(graph.tasks)}))
        return Setting(workload, setting.cluster, point, setting.seed, setting.trial_timeout_s)


def graph_of(setting: Setting) -> RecordedGraph | None:
    path = setting.point.params.get("graph")
    return _read(path) if setting.workload.name == REPLAY and isinstance(path, str) else None


_read = cache(RecordedGraph.read)


def _quicker_replay(seconds: float, setting: Setting) -> tuple[str, Setting] | None:
    graph, scale = graph_of(setting), setting.point.params.get("scale")
    if graph is None or not isinstance(scale, int | float):
        return None
    typical = sorted(task.seconds for task in graph.tasks)[len(graph.tasks) // 2] * scale
    if typical <= seconds * (1 + 1e-9) or typical <= QUICK_S[0] * (1 + 1e-9):
        return None
    factor = float(f"{scale * seconds / typical:.3g}")
    words = f"all durations x {factor:g} (typical task {typical:g} s → {seconds:g} s)"
    return words, setting.with_params(scale=factor)
