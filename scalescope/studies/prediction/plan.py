"""Plans a prediction: the sizes to measure first, and the trials to simulate.

If the graph does not depend on the number of workers, the recorded graph is run again: tasks sleep for their recorded
durations and return results of their recorded sizes. Otherwise the workload builds the graph, and its tasks take the
time that tasks of their prefix took, or would take if they divided the work.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Any

import numpy as np

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.events import Tables
from scalescope.analysis.fitted_costs import FittedCosts, GrowthOfDurations, fitted_costs
from scalescope.analysis.graph_from_records import recorded_graph, waiting
from scalescope.analysis.packing import packing_in_tasks
from scalescope.diagnosis.evidence.held_results import held_results, most_on_one_worker
from scalescope.diagnosis.observation import Observation
from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.cluster import cluster_spec
from scalescope.model.recorded_graph import RecordedGraph, Submission
from scalescope.model.sweep import THREADS, WORKERS, axis_values, digest
from scalescope.model.trial import Trial, ran_what
from scalescope.report import files
from scalescope.run import orchestrator_load, price_table, request
from scalescope.run.request import RunRequest
from scalescope.store.store import Store, SweepRun
from scalescope.studies import others_code
from scalescope.studies.planning import PlannedStudy, RequestAfter, StudyAnswer, because
from scalescope.studies.prediction import link_speed
from scalescope.studies.prediction.data_growth import DataGrowth
from scalescope.studies.prediction.judge import SimulatedSizes, draws_by_size, judge
from scalescope.studies.prediction.measured import MeasuredSizes
from scalescope.studies.prediction.not_simulated import new_tasks, not_simulated
from scalescope.studies.prediction.parameters import ASKED, PredictionParameters, sizes
from scalescope.workloads.replay import NAME as REPLAY

MANY_TASKS = 5_000  # tasks of all simulated trials; from here on, trials are simulated in parallel on all cores
SPREADS = 2.5  # standard deviations of held bytes that are added to the mean of the draws
FURTHER_DRAWS = 3  # imagined draws with the spread pooled over all sizes, added to the draws of each size
DRAWS = 3  # simulations of each trial, because tasks are placed at random
# Tasks of all simulated trials; from here on, each trial is simulated once, and only the largest measured size is
# simulated for comparison.
TOO_MANY_TASKS = 20_000
MEASURING, AGAIN, COUNTING, CHANGED, KNOWN = "measuring", "again", "counting", "changed", "known"
AHEAD = (2, 4, 8, 16)  # default sizes, as multiples of the largest measured size
MEASURED = ("workload", "cluster", "environment", "seed", "trial_timeout_s", "params", "axes", "repeats")


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    asked = _checked(given)
    question = {name: given[name] for name in (*ASKED, "params") if given.get(name)}
    if asked.workload:
        sweep = {name: value for name in MEASURED if (value := given.get(name, getattr(asked, name))) not in ("", {})}
        first = request.check({**sweep, "store": store}, records=records)
        return _planned(PredictionSteps(asked, (store, records), None, first), {**sweep, **question})
    with Store.open(store, records) as opened:
        run = opened.run(asked.run or "latest")
    axes = {name: axis_values(name, values) for name, values in asked.axes.items()}
    origin = MeasuredSizes.of(run, sizes(asked.using), axes, asked.params)
    growth = DataGrowth.of(origin, asked.params)
    if growth is not None:  # then the workload builds all graphs, so that they can be compared
        origin = replace(origin, builds_by_workers=True)
    for name, value in asked.params.items():
        if any(each.get(name) == value for each in origin.other_settings):
            raise InvalidField(
                f"params.{name}", value, "a value that was not measured", next_step=f"choose it by -a {name}={value}"
            )
    question = {"run": run.id, "workload": run.sweep.workload, **question, **({"axes": asked.axes} if axes else {})}
    return _planned(PredictionSteps(asked, (store, records), origin, growth=growth), question, follows=run.id)


def _planned(prediction: PredictionSteps, question: Mapping[str, Any], *, follows: str = "") -> PlannedStudy:
    requests = tuple(prediction.steps.values())
    return PlannedStudy("prediction", question, requests, prediction.answer, follows, prediction.so_far)


def check(given: Mapping[str, Any], store: str = "") -> None:
    _checked(given)


def check_begin(run: str, workload: str, axes: Mapping[str, Any], next_step: str) -> None:
    """Raise `InvalidField` if a study names both a run and a workload, or a workload without sizes to measure."""
    if workload and run:
        raise InvalidField("run", run, "either a run, or a workload to measure first")
    if workload and not axes.get(WORKERS):
        raise InvalidField("axes", dict(axes), "the numbers of workers to measure first", next_step=next_step)


def _checked(given: Mapping[str, Any]) -> PredictionParameters:
    asked = parameters.check(PredictionParameters, given)
    check_begin(asked.run, asked.workload, asked.axes, "add -a workers=1,2,4")
    if not asked.workload and WORKERS in asked.axes:
        raise InvalidField(
            f"axes.{WORKERS}",
            asked.axes[WORKERS],
            "a setting of the run",
            next_step="--using chooses measured sizes, --workers names the sizes to predict",
        )
    cluster(FittedCosts(), asked.bandwidth)
    return asked


@dataclass(frozen=True)
class PredictionSteps:
    """The runs of a prediction, and the answer that follows from these runs."""

    asked: PredictionParameters
    address: tuple[str, str]  # addresses of the store and of its raw records
    origin: MeasuredSizes | None  # None: the study measures first
    first: RunRequest | None = None  # the sweep to measure first, if there is no origin
    growth: DataGrowth | None = None  # set if another amount of data than measured is asked for

    @property
    def steps(self) -> Mapping[str, RunRequest | RequestAfter]:
        """The runs of the study, by purpose, in order; a function makes a run's request, or None for no run."""
        steps: dict[str, RunRequest | RequestAfter] = {MEASURING: self.first} if self.first else {}
        steps[AGAIN] = self.again
        if self.settings:
            steps[COUNTING] = self.counted
        if self.changes:
            steps[CHANGED] = self.changed
        return {**steps, KNOWN: self.known}

    def _by_step(self, runs: Sequence[SweepRun]) -> dict[str, SweepRun]:
        return dict(zip(self.steps, runs, strict=False))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Parameters of the workload whose values differ from the measured ones."""
        if self.growth is not None:
            return {**self.asked.params, self.growth.parameter: self.growth.value}
        return {} if self.asked.workload else self.asked.params

    @property
    def changes(self) -> bool:
        """Whether to predict for another cluster or other parameters than the measured ones."""
        return bool(self.asked.bandwidth or self.asked.threads or self.settings)

    def again(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest:
        """Simulates the measured sizes for comparison; also the requested sizes, unless `changes`."""
        measured = self._measured(runs)
        wanted = () if self.changes else self._wanted(measured)
        compared = () if _is_large(measured) else measured.by_workers
        return self._simulated(measured, {*compared, measured.largest, *wanted}, store, folder)

    def counted(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest:
        """Simulates the largest measured size with the changed parameters, to count the tasks of each prefix."""
        measured = self._measured(runs)
        return self._simulated(measured, [measured.largest], store, folder, durations=measured.mean_durations)

    def changed(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
        """Simulates the requested sizes with the requested changes; None if the tasks could not be counted."""
        measured, counted = self._measured(runs), self._by_step(runs).get(COUNTING)
        if counted is None:
            return self._simulated(measured, self._wanted(measured), store, folder, changed=True)
        if not counted.trials[0].counts:
            return None
        trial = counted.trials[0]
        durations = self.growth.durations(measured.base, trial) if self.growth else measured.shared_durations(trial)
        return self._simulated(measured, self._wanted(measured), store, folder, changed=True, durations=durations)

    def _wanted(self, measured: MeasuredSizes) -> tuple[int, ...]:
        return sizes(self.asked.workers) or tuple(measured.largest * times for times in AHEAD)

    def known(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
        """Simulates the largest measured size from the smaller ones, to check the answer; None without smaller ones."""
        measured = self._measured(runs)
        if measured.smaller is None or (self.changes and CHANGED not in self._by_step(runs)):
            return None
        return self._simulated(measured.smaller, {measured.smaller.largest, measured.largest}, store, folder)

    def so_far(self, runs: Sequence[SweepRun]) -> str:
        """For a large graph, a first answer before the run that checks it, which takes as long again; else empty."""
        measured = self._measured(runs)
        if measured.smaller is None or not _is_large(measured):
            return ""
        return f"{self.answer(runs).line}. How far to trust the prediction is not known yet."

    def answer(self, runs: Sequence[SweepRun]) -> StudyAnswer:
        measured, by_step = self._measured(runs), self._by_step(runs)
        if self.changes and CHANGED not in by_step:
            why = because(by_step[COUNTING].trials)
            return StudyAnswer(f"Not predictable: the changed tasks could not be counted.{why}", {}, alarm=True)
        again, changed = by_step[AGAIN], by_step.get(CHANGED)
        with Store.open(*self.address) as store:
            tables = [store.tables(trial) for trial in measured.typical]
            base = Observation.of(measured.base, tables[-1])
            results = _costs(measured, tables, [Attempts.read(each) for each in tables]).results
            ahead = {
                workers: trials for workers, trials in draws_by_size(changed or again).items() if trials[0].records
            }
            held = {
                workers: [most_on_one_worker(Observation.of(each, store.tables(each))) for each in trials]
                for workers, trials in ahead.items()
            }
        room, shares = held_results(base), not_simulated(base, replayed=not measured.builds_by_workers)
        if measured.builds_by_workers or self.settings:
            shares |= new_tasks(measured.base, [trials[0] for trials in ahead.values()])
        simulated = SimulatedSizes(_most(held), again, changed, by_step.get(KNOWN), results)
        room_bytes = room.fits if room else 0.0
        return judge(measured, simulated, self._wanted(measured), price_table.load(), shares, room_bytes, self.growth)

    def _measured(self, runs: Sequence[SweepRun]) -> MeasuredSizes:
        return self.origin or MeasuredSizes.of(self._by_step(runs)[MEASURING], sizes(self.asked.using))

    def _simulated(
        self,
        measured: MeasuredSizes,
        workers: Collection[int],
        store: Store,
        folder: str,
        *,
        changed: bool = False,
        durations: Mapping[str, float] | None = None,
    ) -> RunRequest:
        """Simulates these sizes; with `durations` (seconds by prefix) the workload builds its graph with `settings`."""
        every = [store.tables(trial) for trial in measured.typical]
        attempts = [Attempts.read(tables) for tables in every]
        costs = _costs(measured, every, attempts)
        tables, spec = every[-1], cluster(costs, self.asked.bandwidth if changed else "")
        apart = [without_packing(*each, costs.cpu_s_per_byte) for each in zip(measured.typical, every, strict=True)]
        packed = {trial.point.workers: by_prefix for trial, (_, by_prefix) in zip(measured.typical, apart, strict=True)}
        measured, tasks = measured.without(packed), len(tables["tasks"]["key"])
        sweep: dict[str, Any] = {"seed": self.asked.seed, "trial_timeout_s": self.asked.trial_timeout_s, "repeats": 1}
        if measured.builds_by_workers or durations is not None:
            self._may_build(measured)
            sweep["workload"] = measured.run.sweep.workload
            spec |= {
                "task_cost": "recorded",
                "durations": _durations(measured, workers) if durations is None else durations,
            }
            settings = self.settings if durations is not None else {}
            points = [{**measured.values_at(each), **settings} for each in sorted(workers)]
        else:
            sweep["workload"] = REPLAY
            files.make_folder(folder, "recorded graph")
            graph, points = recorded_graph(apart[-1][0], virtual=measured.base.virtual), list[dict[str, Any]]()
            share = cpu_share(measured.base) if costs.cpu_s_per_byte else 0.0
            graph = prepared(graph, tables, attempts[-1], share)
            trials = zip(measured.typical, every, attempts, strict=True)
            waited = {trial.point.workers: waited_first(records, seen) for trial, records, seen in trials}
            draws = DRAWS if tasks * len(workers) * DRAWS < TOO_MANY_TASKS else 1
            for each in sorted(workers):
                text = measured.resized(waiting_longer(graph, waited, each), each).to_json()
                place = f"{folder}/graph-{digest(text)}.json"
                files.write(place, text, "recorded graph")
                point = {"graph": place, WORKERS: each, THREADS: measured.base.point.threads_per_worker}
                points += [{**point, "draw": number} for number in range(draws)]
        if changed and self.asked.threads is not None:
            points = [{**point, THREADS: self.asked.threads} for point in points]
        at_once = min(len(points), len(orchestrator_load.cores())) if tasks * len(points) >= MANY_TASKS else 1
        sweep |= {"cluster": spec, "points": points, "parallel_clusters": max(at_once, 1), "store": self.address[0]}
        return request.check(sweep, records=self.address[1])

    def _may_build(self, measured: MeasuredSizes) -> None:
        if ran_what(measured.run.trials):
            raise InvalidField(
                "run",
                measured.run.id,
                "a sweep of a function, which can build its graph for other numbers of workers or other parameters",
                next_step="scalescope predict -w FILE.py:FUNCTION -a workers=1,2,4",
            )
        others_code.check(measured.run, others_code=self.asked.others_code)


def _costs(measured: MeasuredSizes, every: Sequence[Tables], attempts: Sequence[Attempts]) -> FittedCosts:
    told = [(trial.facts.get("cluster") or {}).get("cpu_ms_per_mb") for trial in measured.typical]
    packing = [None if each is None else each / 1e9 for each in told]  # known if the measured cluster was simulated
    found = [fitted_costs(*each) for each in zip(every, attempts, packing, strict=True)]
    pairs = zip(every, found, strict=True)
    return FittedCosts.of_sizes(
        [replace(costs, bandwidth=link_speed.bandwidth(tables, costs)) for tables, costs in pairs]
    )


def _most(held: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The most bytes of results that one worker may hold in another run, by number of workers.

    Few draws of a size do not tell their spread: it is averaged with the spread pooled over all sizes.
    """
    own = {
        workers: variance([each / fmean(draws) for each in draws])
        for workers, draws in held.items()
        if len(draws) > 1 and any(draws)
    }
    pooled, most = fmean(own.values()) if own else 0.0, dict[int, float]()
    for workers, draws in held.items():
        seen = len(draws) - 1
        spread = math.sqrt((seen * own.get(workers, pooled) + FURTHER_DRAWS * pooled) / (seen + FURTHER_DRAWS))
        most[workers] = max(*draws, fmean(draws) * (1 + SPREADS * spread))
    return most


def _is_large(measured: MeasuredSizes) -> bool:
    """Whether to simulate only the largest measured size for comparison, so that an answer takes half a minute."""
    tasks = measured.base.metrics.tasks if measured.base.metrics else 0
    return tasks * len(measured.by_workers) >= TOO_MANY_TASKS


def _durations(measured: MeasuredSizes, workers: Collection[int]) -> dict[str, float]:
    sizes = {size: measured.durations_at(size) for size in workers}
    return {f"{prefix}@{size}": seconds for size, found in sizes.items() for prefix, seconds in found.items()}


def cpu_share(trial: Trial) -> float | None:
    """Share of a task's time on a core in a simulated trial; None for a real one, where distributed measures it."""
    return float(not trial.facts.get("modelled")) if trial.virtual else None


def without_packing(trial: Trial, tables: Tables, cpu_s_per_byte: float | None) -> tuple[Tables, Mapping[str, float]]:
    """The tables with tasks shortened by the seconds that packing added to them; and these seconds by prefix."""
    if not cpu_s_per_byte:
        return tables, {}
    tasks, seconds = tables["tasks"], packing_in_tasks(tables, cpu_s_per_byte, cpu_share(trial))
    by_prefix = defaultdict[str, float](float)
    for prefix, each in zip(tasks["prefix"], seconds.tolist(), strict=True):
        by_prefix[prefix] += each
    return {**tables, "tasks": {**tasks, "stop": np.asarray(tasks["stop"], np.float64) - seconds}}, by_prefix


def prepared(graph: RecordedGraph, tables: Tables, attempts: Attempts, share: float | None = 0.0) -> RecordedGraph:
    """The graph with the client's pause and wait before it sent the first tasks.

    The client's later waits are left to the simulation. `share`: the part of the tasks' time on a core, which packing
    prolongs; 0 if the durations include packing; None to keep the shares in the graph.
    """
    waited_s = waited_first(tables, attempts)
    _, *rest = graph.submissions
    first = Submission(pause_s=max(-attempts.begin - waited_s, 0.0), waited_s=waited_s)
    rest = [replace(each, waited_s=0.0) for each in rest]
    if share is not None:
        graph = graph.changed(lambda each: replace(each, cpu=(share,) * len(each.stages)))
    return replace(graph, submissions=(first, *rest))


def waited_first(tables: Tables, attempts: Attempts) -> float:
    """Seconds that the client waited for the cluster before it sent the first tasks, as in `client.scatter`."""
    until = waiting(tables)
    return until(attempts.epoch) - until(attempts.epoch + attempts.begin) if until else 0.0


def waiting_longer(graph: RecordedGraph, waited_s: Mapping[int, float], workers: int) -> RecordedGraph:
    """The graph with the wait before the first tasks extrapolated to `workers` from `waited_s` (seconds by workers)."""
    first, *rest = graph.submissions
    if min(waited_s.values()) <= 0:
        return graph
    grown = replace(first, waited_s=GrowthOfDurations.fit(waited_s).at(workers))
    return replace(graph, submissions=(grown, *rest))


def cluster(costs: FittedCosts, bandwidth: str = "") -> dict[str, Any]:
    """The simulated cluster with the measured costs; costs not measured keep their defaults.

    Raises `InvalidField` if `bandwidth` cannot be read.
    """
    found = {
        "worker_us": None if costs.worker_s is None else round(costs.worker_s * 1e6, 1),
        "message_ms": None if costs.message_s is None else round(costs.message_s * 1e3, 3),
        "cpu_ms_per_mb": None if costs.cpu_s_per_byte is None else round(costs.cpu_s_per_byte * 1e9, 3),
        "client_bandwidth": None if costs.client_bandwidth is None else _rate(costs.client_bandwidth),
        "bandwidth": bandwidth or (None if costs.bandwidth is None else _rate(costs.bandwidth)),
    }
    spec = {"kind": "simulated", **{name: value for name, value in found.items() if value is not None}}
    cluster_spec(spec)
    return spec


def _rate(bytes_per_second: float) -> str:
    return f"{max(bytes_per_second / 1e3, 1.0):.0f}kB"
