"""One setting after another, each as a run of its own in the store; the steps of an isolation, without Prefect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import TracebackType
from typing import Self

from scalescope import workloads
from scalescope.analysis.graph_from_records import recorded_graph
from scalescope.errors import CaptureError, DriverError, InfrastructureError
from scalescope.isolation.reduce import Move, SymptomReading
from scalescope.isolation.removals import QUICK_S, Setting, checked, sentence
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.model.sweep import digest
from scalescope.model.trial import Trial
from scalescope.report import files
from scalescope.run.drivers import Drivers
from scalescope.run.request import RunRequest, check
from scalescope.run.signals import shielded
from scalescope.run.sweep import abort, analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.row_conversion import STEP_OF
from scalescope.store.schema import RunState
from scalescope.store.store import Store
from scalescope.studies.symptom import Symptom
from scalescope.workloads.replay import NAME as REPLAY


class SettingMeasurer:
    """Measures settings, each as a run of its own in the store, and remembers them. A context manager.

    Every step is durable when it ends; a step that the same isolation measured with the same packages is taken from the
    store. The cluster stays open as long as the next setting can use it.

    Args:
        store: Where the steps are kept; the caller closes it.
        address: Of the store, and of its raw records.
        isolation: Id of the isolation.
        symptom: What is looked for.
        start: The trial that the search begins with, and its setting.
        folder: Path or address for recorded graphs.
        says: Told in a sentence whenever the driver begins something.
    """

    def __init__(
        self,
        store: Store,
        *,
        address: tuple[str, str],
        isolation: str,
        symptom: Symptom,
        start: tuple[Setting, Trial],
        folder: str,
        says: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._store = store
        self._address = address
        self._isolation = isolation
        self._symptom = symptom
        self._folder = folder
        self._says = says
        self._trials: dict[Setting, Trial] = {start[0]: start[1]}
        self._drivers: Drivers | None = None
        self.notes: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with shielded():
            drivers, self._drivers = self._drivers, None
            if drivers is not None:
                drivers.close()

    def trial(self, setting: Setting) -> Trial:
        return self._trials[setting]

    def work_s(self, setting: Setting) -> float:
        """Recorded work T1 in seconds; 0 if nothing was measured."""
        metrics = self.trial(setting).metrics
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
        self._trials[setting] = trial
        shows = self._symptom.shows(setting.sweep, trial)
        problem = "" if shows or trial.counts else trial.reason.partition("\n")[0]
        return SymptomReading(shows, sentence(trial), problem)

    def moves(self) -> list[Move[Setting]]:
        return [self._to_replay, *(_quicker_replay(seconds) for seconds in QUICK_S)]

    # ---------------------------------------------------------------- running

    def _known(self, setting: Setting) -> Trial | None:
        from scalescope.capture.host import packages

        for run in self._store.runs(sweep=setting.sweep.id, limit=5):
            same = run.facts.get(STEP_OF) == self._isolation and run.facts.get("packages") == packages()
            if same and run.state is RunState.COMPLETE and run.workload_version == setting.workload.version:
                return run.trials[0]
        return None

    def _run(self, setting: Setting) -> Trial:
        store, records = self._address
        request = check({**setting.sweep.to_mapping(), "store": store}, records=records)
        run, waiting = begin(request, self._store, facts={STEP_OF: self._isolation})
        try:
            run_trials(self._ready(request, run.id), waiting, hold=True)
            analyse(self._store, run.id)
        except BaseException as error:
            abort(self._store, run.id, error)
            raise
        return self._store.run(run.id).trials[0]

    def _ready(self, request: RunRequest, run_id: str) -> Drivers:
        if self._drivers is None:
            self._drivers = Drivers(request, run_id, self._store, says=self._says)
        elif self._drivers.stopped:
            raise DriverError("the isolation was stopped")
        self._drivers.request, self._drivers.run_id = request, run_id
        return self._drivers

    # ---------------------------------------------------------------- replays

    def _to_replay(self, setting: Setting) -> tuple[str, Setting] | None:
        if setting.workload.name == REPLAY or setting.workload.modelled:
            return None
        try:
            graph = recorded_graph(self._store.tables(self.trial(setting)))
        except CaptureError as error:
            self.notes[f"{setting.workload.name} cannot be replayed: {error.what}"] = None
            return None
        return f"{setting.workload.name} → replay of its graph: sleeps of the recorded durations", self.replay(
            setting, graph
        )

    def replay(self, setting: Setting, graph: RecordedGraph) -> Setting:
        data = graph.to_mapping()
        place = f"{self._folder}/graph-{digest(data)}.json"
        files.write(place, json.dumps(data), "recorded graph")
        workload = workloads.load(REPLAY)
        params = workload.bind({"graph": place, "tasks": len(graph.tasks)})
        point = replace(setting.point, params=params)
        return Setting(workload, setting.cluster, point, setting.seed, setting.trial_timeout_s)


def graph_of(setting: Setting) -> RecordedGraph | None:
    """The graph that a setting replays, if it does."""
    path = setting.point.params.get("graph")
    return _read(path) if setting.workload.name == REPLAY and isinstance(path, str) else None


_read = cache(RecordedGraph.read)


def _quicker_replay(seconds: float) -> Move[Setting]:
    def quicker(setting: Setting) -> tuple[str, Setting] | None:
        graph, scale = graph_of(setting), setting.point.params.get("scale")
        if graph is None or not isinstance(scale, int | float):
            return None
        typical = sorted(task.seconds for task in graph.tasks)[len(graph.tasks) // 2] * scale
        if typical <= seconds * (1 + 1e-9) or typical <= QUICK_S[0] * (1 + 1e-9):
            return None
        factor = float(f"{scale * seconds / typical:.3g}")
        return f"all durations x {factor:g} (typical task {typical:g} s → {seconds:g} s)", setting.with_params(
            scale=factor
        )

    return quicker
