"""Plans the search for a cluster: a first measurement, the clusters to simulate, and further useful measurements."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope.analysis.cost import Prices
from scalescope.analysis.task_lengths import TooLong, longest_tasks, too_long
from scalescope.diagnosis.evidence.held_results import most_on_one_worker
from scalescope.diagnosis.observation import Observation
from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, THREADS, WORKERS, axis_values
from scalescope.model.trial import Trial, ran_what
from scalescope.run import price_table, request
from scalescope.run.growth import ExtraTrial
from scalescope.run.request import RunRequest
from scalescope.store.store import Store, SweepRun
from scalescope.studies import others_code
from scalescope.studies.planning import PlannedStudy, StudyAnswer
from scalescope.studies.prediction.judge import Prediction
from scalescope.studies.prediction.measured import MeasuredSizes, elapsed_s
from scalescope.studies.prediction.parameters import PredictionParameters
from scalescope.studies.prediction.plan import PredictionSteps, check_begin
from scalescope.studies.sizing import as_code
from scalescope.studies.sizing.choice import (
    Configuration,
    SecondGroup,
    Sizing,
    Wanted,
    choose,
    configuration,
    contenders,
    line,
    surer,
)
from scalescope.studies.sizing.contention import Contention, ThreadedSizes, contention
from scalescope.studies.sizing.memory import MeasuredMemory
from scalescope.studies.sizing.parameters import ASKED, SizeParameters, bytes_of, seconds_of, threads_of
from scalescope.studies.sizing.second_group import second_group

USUAL_THREADS = (1, 2, 4, 8)
AHEAD = 16  # default limit on cores, as a multiple of the measured cores
WAVES = range(1, 9)  # numbers of waves; numbers of workers that run the widest stage in that many waves are tried
MOST_TASKS = 150_000  # most tasks of all simulated trials together; for larger graphs, fewer clusters are tried
MOST_DRAWS = 24  # most simulations of one cluster that may be the best
CLOSER_S = 40.0  # real seconds of repeated simulations after which no further ones begin
MEASURED = ("workload", "cluster", "environment", "seed", "trial_timeout_s", "params", "axes", "repeats")


def ask(given: Mapping[str, Any], store: str = "", records: str = "") -> PlannedStudy:
    asked = _checked(given)
    question = {name: value for name in ASKED if (value := getattr(asked, name)) not in (None, "", False)}
    if asked.workload:
        sweep = {name: value for name in MEASURED if (value := given.get(name, getattr(asked, name))) not in ("", {})}
        search = _Search(asked, (store, records), None, request.check({**sweep, "store": store}, records=records))
        return PlannedStudy("size", {**sweep, **question}, search.steps, search.answer)
    with Store.open(store, records) as opened:
        run = opened.run(asked.run or "latest")
    if asked.measure:
        _may_measure(run, asked)
    question |= {"run": run.id, "workload": run.sweep.workload, **({"axes": asked.axes} if asked.axes else {})}
    search = _Search(asked, (store, records), run)
    search.measured([])  # raises an error now if the run cannot be sized
    return PlannedStudy("size", question, search.steps, search.answer, follows=run.id)


def check(given: Mapping[str, Any], store: str = "") -> None:
    _checked(given)


def _checked(given: Mapping[str, Any]) -> SizeParameters:
    asked = parameters.check(SizeParameters, given)
    check_begin(asked.run, asked.workload, asked.axes, "add -a workers=1,2")
    return asked


def _may_measure(run: SweepRun, asked: SizeParameters) -> None:
    if ran_what(run.trials):
        step = "run the script once more on the cluster that the answer names, then ask again"
        raise InvalidField("measure", True, "a sweep of a function, which can be run again", next_step=step)
    others_code.check(run, others_code=asked.others_code)
    others_code.check_can_run_again(run)


@dataclass(frozen=True)
class _Round:
    """The simulated runs of one search, and the measurements they are based on."""

    measured: MeasuredSizes
    runs: tuple[SweepRun, ...] = ()  # up to three: measured sizes, all clusters, the largest size from smaller ones

    @property
    def complete(self) -> bool:
        return len(self.runs) == 2 + (self.measured.smaller is not None)


@dataclass(frozen=True)
class _Search:
    asked: SizeParameters
    address: tuple[str, str]  # addresses of the store and of its raw records
    run: SweepRun | None  # None: the study measures first
    first: RunRequest | None = None  # the sweep to measure first, if there is no run

    @property
    def steps(self) -> tuple[Any, ...]:
        """The sweep `first` unless a run is given, three simulations; with `measure`, a measurement and three more."""
        search = (self._simulated, self._simulated, self._simulated)
        more = (self._more, *search) if self.asked.measure else ()
        return (*([self.first] if self.first else []), *search, *more)

    # -------------------------------------------------------------- runs so far

    def rounds(self, runs: Sequence[SweepRun]) -> list[_Round]:
        """The searches so far; the second one also uses the further measurement."""
        left = iter(runs)
        base = self.run or next(left)
        found = [self._round(base, left)]
        if found[0].complete and (extra := next(left, None)) is not None:
            found.append(self._round(replace(base, trials=(*base.trials, *extra.trials)), left))
        return found

    def _round(self, base: SweepRun, left: Iterator[SweepRun]) -> _Round:
        measured = self._sizes(base)
        most = 2 + (measured.smaller is not None)
        return _Round(measured, tuple(run for _, run in zip(range(most), left, strict=False)))

    def _sizes(self, run: SweepRun) -> MeasuredSizes:
        axes = {} if self.first else {name: axis_values(name, values) for name, values in self.asked.axes.items()}
        return MeasuredSizes.of(run, axes=axes)

    def measured(self, runs: Sequence[SweepRun]) -> MeasuredSizes:
        return self.rounds(runs)[-1].measured

    # -------------------------------------------------------------- next run

    def _simulated(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
        """The next simulation: the measured sizes, all clusters, or the largest size from the smaller ones."""
        last = self.rounds(runs)[-1]
        if last.complete:
            return None
        known = self._known(last.measured, store)
        steps = self._prediction(last.measured, known, last.measured.base.point.threads_per_worker)
        if not last.runs:
            return steps.again([], store, folder)
        if len(last.runs) == 2:
            return steps.known(last.runs, store, folder)
        every = [self._prediction(last.measured, known, threads) for threads in self._grid(last.measured)]
        asked = [each.changed(last.runs, store, folder) for each in every]
        points = [point for each in asked if each for point in each.sweep.points]
        first = next(filter(None, asked))
        given = {**first.sweep.to_mapping(), "points": points, "parallel_clusters": first.parallel_clusters}
        asked_all = request.check({**given, "store": self.address[0]}, records=self.address[1])
        return replace(asked_all, grow=_Closer(self, last, asked_all)) if "draw" in points[0] else asked_all

    def _more(self, runs: Sequence[SweepRun], store: Store, folder: str) -> RunRequest | None:
        [found] = self.rounds(runs)
        answer = Sizing.from_mapping(self.answer(runs).result)
        base = found.measured
        if not answer.measurements:
            return None
        values = [{**base.values_at(each.workers), THREADS: each.threads} for each in answer.measurements]
        kept = (*self._own_params(base), WORKERS, THREADS)
        sweep = {**base.run.sweep.to_mapping(), "axes": {}, "repeats": 1, "warmups": 0}
        sweep["points"] = [{name: value for name, value in each.items() if name in kept} for each in values]
        return request.check({**sweep, "store": self.address[0]}, records=self.address[1])

    @staticmethod
    def _own_params(base: MeasuredSizes) -> set[str]:
        """Names of the axes of the run; the points of the further measurement must set them."""
        axes = {*base.run.sweep.axes, *(name for point in base.run.sweep.points for name in point)}
        return {ITEMS if name == ITEMS_PER_WORKER else name for name in axes}

    def _known(self, measured: MeasuredSizes, store: Store) -> Contention:
        return contention(measured, Observation.of(measured.base, store.tables(measured.base)))

    def _prediction(self, measured: MeasuredSizes, known: Contention, threads: int) -> PredictionSteps:
        sizes = ",".join(map(str, self._grid(measured).get(threads, (measured.largest,))))
        given = PredictionParameters(workers=sizes, threads=threads, seed=self.asked.seed)
        return PredictionSteps(given, self.address, ThreadedSizes.on(measured, known, threads))

    # -------------------------------------------------------------- clusters to try

    def wanted(self, measured: MeasuredSizes) -> Wanted:
        asked, host = self.asked, _host(measured)
        cores = asked.cores or int(host.get("usable_cpus") or AHEAD * measured.base.point.threads)
        together = None if asked.memory else host.get("memory_bytes")
        memory, deadline_s = bytes_of("memory", asked.memory), seconds_of("deadline", asked.deadline)
        return Wanted(cores, memory, together, deadline_s, asked.budget, asked.cheapest)

    def _grid(self, measured: MeasuredSizes) -> dict[int, tuple[int, ...]]:
        """Numbers of workers to simulate, by threads per worker."""
        cores, own = self.wanted(measured).cores, measured.base.point.threads_per_worker
        threads = threads_of(self.asked.threads) or tuple(sorted({*USUAL_THREADS, own}))
        if measured.builds_by_workers:  # then one duration per prefix and number of workers serves all clusters
            threads = (own,)
        metrics = measured.base.metrics
        widest, tasks = (metrics.widest_stage, metrics.tasks) if metrics else (1, 1)
        found = {each: _workers(cores // each, math.ceil(widest / each)) for each in threads if each <= cores}
        if not found:
            raise InvalidField("threads", self.asked.threads, f"numbers up to {cores}, the cores of all workers")
        while tasks * sum(map(len, found.values())) > MOST_TASKS and max(map(len, found.values())) > 1:
            found = {each: sizes[::-2][::-1] for each, sizes in found.items()}
        return found

    # -------------------------------------------------------------- the answer

    def answer(self, runs: Sequence[SweepRun]) -> StudyAnswer:
        rounds = self.rounds(runs)
        last = rounds[-1] if len(rounds[-1].runs) > 1 else rounds[0]
        measured, wanted = last.measured, self.wanted(last.measured)
        if len(last.runs) < 2:
            return StudyAnswer("No cluster could be simulated: the graph depends on the number of workers", {}, True)
        with Store.open(*self.address) as store:
            known, memory, observations = self._seen(measured, store)
            found, doubts = self._configurations(last, known, memory, observations)
            chosen = choose(found, wanted)
            group = self._group(last.runs[1], chosen.chosen, wanted, memory, store)
        chosen = replace(
            chosen,
            unsure=(*doubts, *_unsure(memory, known, chosen)),
            measurements=surer(chosen, sizes=sorted(measured.by_workers), threads=known.measured)
            if len(rounds) == 1
            else (),
            second_group=group,
            too_long=_too_long(measured, observations, chosen),
            currency=price_table.load().currency,
            form=as_code.form_of(measured.base, measured.run.sweep.cluster_of(measured.base.point), observations[-1]),
        )
        chosen = replace(chosen, code=as_code.forms(chosen, measured.run, measured.base))
        alarm = chosen.chosen is None or chosen.too_long is not None
        return StudyAnswer(line(chosen, wanted), chosen.to_mapping(), alarm)

    def contenders(self, last: _Round, draws: Mapping[tuple[int, int], Sequence[float]]) -> list[Configuration]:
        with Store.open(*self.address) as store:
            found, _ = self._configurations(last, *self._seen(last.measured, store))
        return contenders(found, self.wanted(last.measured), draws)

    def _seen(self, measured: MeasuredSizes, store: Store) -> tuple[Contention, MeasuredMemory, Sequence[Observation]]:
        observations = [Observation.of(trial, store.tables(trial)) for trial in measured.typical]
        return contention(measured, observations[-1]), MeasuredMemory.of(observations), observations

    def _configurations(
        self, last: _Round, known: Contention, memory: MeasuredMemory, observations: Sequence[Observation]
    ) -> tuple[list[Configuration], list[str]]:
        """All simulated clusters, and reasons to doubt their times."""
        measured, wanted, prices = last.measured, self.wanted(last.measured), price_table.load()
        held = {each.trial.point.workers: most_on_one_worker(each) for each in observations}
        found, doubts = [], dict[str, None]()
        for threads in self._grid(measured):
            predicted = self._predicted(last, known, threads)
            doubts |= dict.fromkeys([*replace(predicted, room_bytes=0.0).doubts, *predicted.missing.values()])
            for size in predicted.sizes:
                most = held.get(size.workers, 0.0) if threads == known.measured else 0.0
                limit = memory.limit(max(size.held_bytes, most), threads, wanted.there(size.workers))
                factor = _price_factor(measured, threads, limit, prices)
                if threads == known.measured:
                    size = replace(size, measured_s=measured.all_seconds.get(size.workers))
                sure = known.sure(threads)
                found.append(configuration(size, threads, limit, money_factor=factor, measured=sure))
        return found, [*doubts]

    def _predicted(self, last: _Round, known: Contention, threads: int) -> Prediction:
        again, sizes, *rest = last.runs
        own = tuple(each for each in sizes.trials if each.point.threads_per_worker == threads)
        steps = self._prediction(last.measured, known, threads)
        return Prediction.from_mapping(steps.answer([again, replace(sizes, trials=own), *rest]).result)

    @staticmethod
    def _group(
        sizes: SweepRun, one: Configuration | None, wanted: Wanted, memory: MeasuredMemory, store: Store
    ) -> SecondGroup | None:
        shape = (one.workers, one.threads) if one else None
        known = (each for each in sizes.trials if each.counts and each.records)
        trial = next((each for each in known if (each.point.workers, each.point.threads_per_worker) == shape), None)
        if one is None or trial is None:
            return None
        return second_group(Observation.of(trial, store.tables(trial)), memory, one, wanted.there(one.workers))


@dataclass(frozen=True)
class _Closer:
    """Growth of the sweep: simulates again clusters that may be best, until only one may be, or time is spent."""

    search: _Search
    before: _Round
    request: RunRequest  # the sweep that simulates each cluster a few times
    known: dict[int, list[ExtraTrial]] = field(default_factory=dict, compare=False)  # results of calls, by `len(done)`

    def __call__(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        if len(done) not in self.known:
            self.known[len(done)] = self._further(done)
        return self.known[len(done)]

    def _further(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        planned, draws = {each.point.id for each in self.request.plan}, defaultdict[tuple[int, int], list[Trial]](list)
        if sum(trial.real_s for trial in done if trial.point.id not in planned) > CLOSER_S:
            return []
        for trial in done:
            draws[trial.point.workers, trial.point.threads_per_worker].append(trial)
        valid = {shape: [elapsed_s(each) for each in own if each.counts] for shape, own in draws.items()}
        sizes = replace(self.before.runs[0], sweep=self.request.sweep, trials=tuple(done))
        found = self.search.contenders(replace(self.before, runs=(*self.before.runs, sizes)), valid)
        if len(found) < 2:
            return []
        return [extra for each in found for extra in self._again(draws[each.workers, each.threads])]

    def _again(self, known: Sequence[Trial]) -> Iterator[ExtraTrial]:
        """Further simulations of a cluster: as many as were done before, up to `MOST_DRAWS` in all."""
        for draw in range(len(known), min(2 * len(known), MOST_DRAWS)):
            values = {**known[0].point.values, "draw": draw}
            yield ExtraTrial(self.request.sweep.point(values, self.request.workload), repeat=0)


def _workers(most: int, widest: int) -> tuple[int, ...]:
    """Numbers of workers to try: powers of two, `most`, and numbers that run `widest` tasks in full waves."""
    powers = {2**power for power in range(most.bit_length())}
    waves = {math.ceil(widest / waves) for waves in WAVES}
    return tuple(sorted(each for each in {most, *powers, *waves} if 1 <= each <= most))


def _host(measured: MeasuredSizes) -> Mapping[str, Any]:
    """Facts of the measuring host if all workers were processes on that host; else empty."""
    spec = measured.run.sweep.cluster_of(measured.base.point)
    local = (measured.base.facts.get("cluster") or {}).get("kind") == "LocalCluster"
    here = local or (spec.here and spec.real_time and not spec.shares_processes)
    return (measured.base.facts.get("host") or {}) if here else {}


def _price_factor(measured: MeasuredSizes, threads: int, limit: float, prices: Prices) -> float:
    """Price of a worker divided by that of a measured one: the ratio of threads or of memory, whichever is larger."""
    spec, own = measured.run.sweep.cluster_of(measured.base.point), measured.base.point.threads_per_worker
    known = float(getattr(spec, "memory_mb", 0) or 0) * 2**20 / getattr(spec, "job_workers", 1)
    return max(threads / own, limit / known if known else 0.0)


def _unsure(memory: MeasuredMemory, known: Contention, found: Sizing) -> list[str]:
    texts = []
    if not memory.known:
        texts.append("the memory of processes was not measured: limits count results alone")
    if found.chosen and not found.chosen.measured_threads:
        how = "known only from their profile" if known.told else "not known, since tasks were too short for a profile"
        texts.append(
            f"workers with this number of threads ({found.chosen.threads}) were not measured: how their tasks share an "
            f"interpreter is {how}"
        )
    return texts


def _too_long(measured: MeasuredSizes, observations: Sequence[Observation], found: Sizing) -> TooLong | None:
    """Tasks longer than the walltime or lifetime of the recorded cluster's workers; None if there are none."""
    if found.chosen is None:
        return None
    spec = measured.run.sweep.cluster_of(measured.base.point)
    limits = {"walltime": getattr(spec, "walltime_s", 0.0), "lifetime": getattr(spec, "lifetime_s", 0.0)}
    longest = longest_tasks(observations[-1].measured)
    lasting = found.chosen.predicted_s
    each = [too_long(longest, name, limit_s, lasting) for name, limit_s in limits.items() if limit_s]
    return max(filter(None, each), key=lambda one: one.lost, default=None)
