"""Turns simulated trials into predicted seconds with an interval, and names what limits each size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean, pstdev
from typing import Any

from scalescope.analysis.cost import Prices
from scalescope.analysis.distributions import NORMAL
from scalescope.analysis.fitted_costs import ResultLinks
from scalescope.diagnosis import causes
from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.causes.no_known_cause import UNKNOWN
from scalescope.diagnosis.verdict import diagnose
from scalescope.model import words
from scalescope.model.finding import Finding, Severity
from scalescope.model.mapping import Mapped, differing
from scalescope.model.trial import Trial
from scalescope.model.words import capital, number, pairs, percent, plural, seconds
from scalescope.store.store import SweepRun
from scalescope.studies.planning import StudyAnswer, because
from scalescope.studies.prediction.data_growth import DataGrowth
from scalescope.studies.prediction.measured import MeasuredSizes, elapsed_s, middle

BUSY = "host-overloaded"  # code of the finding that other processes made the host too busy to trust measurements
LEVEL = 0.8  # confidence of the intervals
NOISE = 0.03  # relative error of a measurement in real time, assumed if no point was repeated
# Prior: relative error of predicting twice the largest measured size; and how many observed errors it counts as.
# Both come from the predictions in docs/prediction.md that were used for development.
MODEL, STRENGTH = 0.1, 2
MODEL_OF_VIRTUAL = 0.04  # `MODEL` if the measured cluster was itself simulated; from the table in docs/size.md
# A prediction is unreliable from this relative error at the largest measured size, either predicted from the smaller
# sizes or simulated from its own record.
WRONG = 0.5
MUCH_DATA = 1_000_000  # bytes moved between workers; from here on, an assumed bandwidth is mentioned
UNSURE = 0.2  # share of a predicted time; from here on, the uncertainty about links is mentioned
NEAR = 1.1  # sizes within this factor of the fastest count as equally good
# Causes that lose at least this share of the largest loss are named with it: repeats may order them differently.
NEARLY = 0.75
MOST_SETTINGS = 3  # most settings without a prediction that the answer's sentence names


@dataclass(frozen=True)
class PredictedSize(Mapped):
    """One number of workers; times are seconds."""

    workers: int
    predicted_s: float
    low_s: float  # ends of the interval in which 80 % of measurements are expected
    high_s: float
    efficiency: float  # from 0 to 1
    limit: str = ""  # code of the costliest finding; empty: nothing limits this size
    limit_text: str = ""  # title of the costliest finding
    also: tuple[str, ...] = ()  # codes of findings that cost nearly as much
    remedy: str = ""  # remedy of the costliest finding
    remedied_s: float | None = None  # seconds predicted with the remedy; None: effect unknown
    measured_s: float | None = None
    worker_hours: float = 0.0
    money: float | None = None  # cost of the worker hours; None: price unknown
    held_bytes: float = 0.0  # most bytes of results on one worker at once


@dataclass(frozen=True)
class Trust(Mapped):
    """How well the largest measured size was predicted from the smaller ones."""

    workers: int
    largest_used: int
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error; above 0 if the prediction is too slow."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Prediction(Mapped):
    """The answer of a prediction."""

    sizes: tuple[PredictedSize, ...]
    asked: tuple[int, ...]
    factor: float  # measured over simulated time; simulated times are multiplied by it
    trust: Trust | None = None  # None if only one size was measured
    not_simulated: Mapping[str, float] = field(default_factory=dict)  # shares from 0 to 1, by text of the part
    room_bytes: float = 0.0  # bytes of results that fit on a worker before it spills; 0: unknown, or no limit
    assumed: tuple[str, ...] = ()  # texts about costs that the trials do not show, for which defaults are used
    costs: Mapping[str, Any] = field(default_factory=dict)  # costs of the simulated cluster
    settings: Mapping[str, Any] = field(default_factory=dict)  # the predicted settings, if the run measured several
    other_settings: tuple[Mapping[str, Any], ...] = ()  # measured settings without a prediction
    missing: Mapping[str, str] = field(default_factory=dict)  # reasons for no answer, by number of workers
    cores: int = 0  # cores of the host if all workers ran on this machine; otherwise, or if unknown, 0
    unchecked: str = ""  # why the largest measured size could not be predicted from the smaller ones
    fitted_at: Mapping[str, Any] = field(default_factory=dict)  # measured values of the growing parameter
    busy_host: bool = False  # True: other processes kept the host busy during the measurement

    def beyond_cores(self, size: PredictedSize) -> bool:
        """Whether the host has fewer cores (if known) than `size` has workers: tasks that compute would share cores."""
        return 0 < self.cores < size.workers

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the prediction."""
        found = ["other processes kept the host busy during the measurement"] if self.busy_host else []
        if self.trust is not None and abs(math.log1p(self.trust.error)) >= math.log1p(WRONG):
            found.append(_error(self.trust))
        if abs(math.log(self.factor)) >= math.log1p(WRONG):
            found.append(f"the simulated cluster took {number(1 / self.factor, 2)} times as long as was measured")
        found += [f"{percent(share)} {text}" for text, share in self.not_simulated.items()]
        for size in self.sizes:
            if size.workers in self.asked and 0 < self.room_bytes < size.held_bytes:
                held, room = words.size(size.held_bytes), words.size(self.room_bytes)
                found.append(
                    f"with {plural(size.workers, 'worker')}, one would hold {held} of results, but has room for only "
                    f"{room}"
                )
        return tuple(found)


@dataclass(frozen=True)
class SimulatedSizes:
    """The simulated runs that a prediction is made from."""

    held_bytes: Mapping[int, float]  # most bytes of results on one worker at once, by number of workers
    again: SweepRun  # simulation of the measured sizes; also of the requested sizes, unless `changed` has them
    changed: SweepRun | None = None  # simulation of the requested sizes with another cluster or other parameters
    known: SweepRun | None = None  # the largest measured size, simulated from the smaller ones
    results: ResultLinks | None = None  # links over which results come to the client


def judge(
    measured: MeasuredSizes,
    simulated: SimulatedSizes,
    asked: Sequence[int],
    prices: Prices,
    not_simulated: Mapping[str, float],
    room_bytes: float,
    growth: DataGrowth | None = None,
) -> StudyAnswer:
    draws = draws_by_size(simulated.again)
    again = {workers: trials[0] for workers, trials in draws.items()}
    if measured.largest not in again:
        line = f"Not predictable: the recorded graph could not be simulated.{because(simulated.again.trials)}"
        return StudyAnswer(line, {}, alarm=True)
    trust = _trust(measured, simulated.known)
    ratio = _ratio(measured, draws, trust, _noise(measured, draws))
    if growth is not None:
        ratio = replace(ratio, data_doublings=growth.doublings)
    run = simulated.changed or simulated.again
    ahead, largest = draws_by_size(run), measured.largest
    # Add measured minus simulated losses of the largest measured size to every size.
    shown = _shares(measured.run, measured.by_workers[largest])
    shown += _shares(simulated.again, draws[largest], -1.0)
    besides = [replace(each, gain=None) for each in shown]
    sizes = [
        replace(
            _with_limits(
                _size(measured, draws, ratio, prices, simulated.results), [*_shares(run, draws), *besides], ratio
            ),
            held_bytes=simulated.held_bytes.get(workers, 0.0),
        )
        for workers, draws in ahead.items()
    ]
    if simulated.changed is not None:
        sizes = [replace(size, measured_s=None) for size in sizes]
    moved = max((first.metrics.transferred_bytes or 0.0 for first, *_ in ahead.values() if first.metrics), default=0.0)
    assumed = _assumed(run) if moved >= MUCH_DATA else ()
    assumed += _assumed_links(simulated.results, [size for size in sizes if size.workers in asked])
    assumed += (growth.assumed,) if growth is not None and growth.assumed else ()
    costs = run.sweep.cluster.to_mapping()
    found = Prediction(
        tuple(sizes),
        tuple(asked),
        ratio.factor,
        trust,
        not_simulated,
        room_bytes,
        assumed,
        costs,
        growth.settings(measured.settings) if growth else measured.settings,
        growth.unused(measured.other_settings) if growth else measured.other_settings,
        {str(workers): _why_missing(run, workers) for workers in asked if workers not in ahead},
        _cores(measured),
        _why_unchecked(simulated.known) if trust is None else "",
        growth.fitted_at if growth else {},
        any(each.code == BUSY and each.limits_trust for trial in measured.typical for each in trial.findings),
    )
    return StudyAnswer(_line(found), found.to_mapping(), bool(found.doubts or found.missing))


def _cores(measured: MeasuredSizes) -> int:
    spec = measured.run.sweep.cluster_of(measured.base.point)
    hosts = [trial.facts.get("host") or {} for trial in measured.by_workers[measured.largest]]
    found = [int(host[name]) for host in hosts for name in ("usable_cpus",) if host.get(name)]
    return min(found) if found and spec.here and spec.real_time and not spec.shares_processes else 0


def _why_missing(run: SweepRun, workers: int) -> str:
    return because([trial for trial in run.trials if trial.point.workers == workers]).strip()


def _why_unchecked(known: SweepRun | None) -> str:
    return "" if known is None else because(known.trials).strip() or "a simulated trial is missing."


def typical(run: SweepRun) -> dict[int, Trial]:
    """The simulated trial of each size; among several draws, the one with the (lower) median time."""
    return {workers: draws[0] for workers, draws in draws_by_size(run).items()}


def draws_by_size(run: SweepRun) -> dict[int, list[Trial]]:
    """The simulated trials of each size, the typical one first."""
    found: dict[int, list[Trial]] = {}
    for trial in run.trials:
        if trial.counts and trial.metrics is not None:
            found.setdefault(trial.point.workers, []).append(trial)
    for draws in found.values():
        first = middle(draws)
        draws.sort(key=lambda trial: trial is not first)
    return dict(sorted(found.items()))


def _trust(measured: MeasuredSizes, known: SweepRun | None) -> Trust | None:
    smaller = measured.smaller
    if known is None or smaller is None:
        return None
    simulated = typical(known)
    if smaller.largest not in simulated or measured.largest not in simulated:
        return None
    factor = smaller.seconds[smaller.largest] / elapsed_s(simulated[smaller.largest])
    predicted = factor * elapsed_s(simulated[measured.largest])
    return Trust(measured.largest, smaller.largest, predicted, measured.seconds[measured.largest])


@dataclass(frozen=True)
class _Ratio:
    """Ratio of measured to simulated time; its logarithm takes a random step with each doubling of the workers."""

    factor: float  # the ratio at the largest measured size
    error: float  # standard deviation of the logarithm of `factor`
    noise: float  # standard deviation of the logarithm of one trial's time
    step: float  # standard deviation of a step
    data_doublings: float = 0.0  # doublings of the amount of data; each adds a step

    def error_at(self, times: float) -> float:
        """Relative standard deviation of one measurement on `times` times the workers of the largest measured size."""
        return math.hypot(self.error, self.noise, self.step * math.sqrt(abs(math.log2(times)) + self.data_doublings))


def _ratio(
    measured: MeasuredSizes, simulated: Mapping[int, Sequence[Trial]], trust: Trust | None, noise: float
) -> _Ratio:
    """Filter the ratios of all measured sizes (Kalman, 1960); a noisy size counts less."""
    found = {
        workers: math.log(seconds / mean_s(simulated[workers]))
        for workers, seconds in sorted(measured.seconds.items())
        if workers in simulated
    }
    # Variance of each size's median time due to noise: it is subtracted, since noise is not an error of the model.
    of_medians = {workers: noise**2 / len(trials) for workers, trials in measured.by_workers.items()}
    steps = [
        max((each - found[measured.largest]) ** 2 - of_medians[workers] - of_medians[measured.largest], 0.0)
        / math.log2(measured.largest / workers)
        for workers, each in found.items()
        if workers != measured.largest
    ]
    if trust is not None:
        by_noise = of_medians[trust.workers] + of_medians.get(trust.largest_used, 0.0)
        doublings = math.log2(trust.workers / trust.largest_used)
        steps.append(max(math.log1p(trust.error) ** 2 - by_noise, 0.0) / doublings)
    model = MODEL_OF_VIRTUAL if measured.base.virtual else MODEL
    step = math.sqrt(fmean([*[model**2] * STRENGTH, *steps]))
    # If the measurements were simulated, too, both follow one model: their ratio differs from 1 mostly by chance.
    before, level, variance = min(found), 0.0, MODEL**2 if measured.base.virtual else math.inf
    for workers, each in found.items():
        variance += step**2 * math.log2(workers / before)
        gain = 1.0 if math.isinf(variance) else variance / (variance + of_medians[workers])
        level, variance, before = level + gain * (each - level), gain * of_medians[workers], workers
    return _Ratio(math.exp(level), math.sqrt(variance), noise, step)


def _noise(measured: MeasuredSizes, draws: Mapping[int, Sequence[Trial]]) -> float:
    """Relative standard deviation of one measurement; on a virtual clock without repeats, that of simulated draws."""
    if measured.spread or not measured.base.virtual:
        return measured.spread or NOISE
    return math.sqrt(fmean(_by_chance(each) ** 2 for each in draws.values()))


def mean_s(draws: Sequence[Trial]) -> float:
    """Geometric mean of the seconds of several simulations of one size, because errors are relative."""
    return geometric_mean(map(elapsed_s, draws))


def _by_chance(draws: Sequence[Trial]) -> float:
    return pstdev(math.log(elapsed_s(each)) for each in draws)


def _size(
    measured: MeasuredSizes,
    draws: Sequence[Trial],
    ratio: _Ratio,
    prices: Prices,
    results: ResultLinks | None = None,
) -> PredictedSize:
    trial = draws[0]
    assert trial.metrics is not None
    workers = trial.point.workers
    predicted = max(ratio.factor * mean_s(draws), trial.metrics.ideal_s)
    by_chance = _by_chance(draws)
    if measured.base.virtual:  # both `noise` and `by_chance` estimate the spread of draws: average them
        ratio, by_chance = replace(ratio, noise=math.hypot(ratio.noise, by_chance) / math.sqrt(2)), 0.0
    error = math.hypot(ratio.error_at(workers / measured.largest), by_chance)
    half = NORMAL.inv_cdf((1 + LEVEL) / 2) * error
    least_s, best_s, most_s = results.seconds(workers) if results else (0.0, 0.0, 0.0)
    # Errors of the model and of the links are independent.
    low = predicted - math.hypot(predicted * -math.expm1(-half), best_s - least_s)
    spec = measured.run.sweep.cluster_of(measured.base.point)
    hours, price = workers * predicted / 3600, prices.of(spec)
    return PredictedSize(
        workers,
        predicted,
        max(low, min(trial.metrics.ideal_s, predicted)),
        predicted + math.hypot(predicted * math.expm1(half), most_s - best_s),
        trial.metrics.work_s / (trial.point.threads * predicted),
        measured_s=measured.all_seconds.get(workers),
        worker_hours=hours,
        money=None if price is None or spec.here else hours * price,
    )


def _shares(run: SweepRun, trials: Sequence[Trial], factor: float = 1.0) -> list[Finding]:
    """Findings of all trials of one size; `lost_s` becomes a share of the trials' worker time, times `factor`."""
    found = []
    for trial in trials:
        assert trial.metrics is not None
        whole_s = sum(trial.metrics.worker_time_s.values()) * len(trials)
        found += [replace(each, lost_s=factor * each.lost_s / whole_s) for each in holding_back(run, trial)]
    return found


def _with_limits(size: PredictedSize, shares: Iterable[Finding], ratio: _Ratio) -> PredictedSize:
    """The size with the causes that limit it; a cause costs the sum of its shares of worker time."""
    found: dict[str, Finding] = {}
    for each in shares:
        before = found.get(each.code)
        found[each.code] = replace(before, lost_s=before.lost_s + each.lost_s) if before else each
    limits = _costliest(_by_cost(each for each in found.values() if each.lost_s >= NOTEWORTHY))
    if not limits:
        return size
    first, *near = limits
    cause = causes.by_code().get(first.code)
    return replace(
        size,
        limit=first.code,
        limit_text=cause.title if cause else "",
        also=tuple(other.code for other in near),
        remedy=first.remedy,
        remedied_s=min(size.predicted_s, ratio.factor * first.gain.predicted_s) if first.gain else None,
    )


def holding_back(run: SweepRun, trial: Trial) -> list[Finding]:
    """Findings that cost time, do not limit trust, and are excusable or of medium severity or more; costliest first."""
    known = causes.by_code()

    def counts(finding: Finding) -> bool:
        excused = finding.code in known and known[finding.code].excusable
        held = excused or finding.severity in (Severity.HIGH, Severity.MEDIUM)
        return held and not finding.limits_trust and finding.lost_s > 0

    return _by_cost(filter(counts, diagnose(run.sweep, [trial]).findings))


def _by_cost(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.code == UNKNOWN.code, -finding.lost_s))


def _costliest(found: Sequence[Finding]) -> list[Finding]:
    """The costliest finding, then those that cost nearly as much."""
    near = [each for each in found[1:] if each.lost_s >= NEARLY * found[0].lost_s and each.code != UNKNOWN.code]
    return [*found[:1], *near]


def _assumed(run: SweepRun) -> tuple[str, ...]:
    cluster = differing(run.sweep.cluster)
    texts = {"bandwidth": "the speed of links", "cpu_ms_per_mb": "the CPU time of packing data"}
    return tuple(text for name, text in texts.items() if name not in cluster)


def _assumed_links(results: ResultLinks | None, asked: Sequence[PredictedSize]) -> tuple[str, ...]:
    for size in asked:
        least_s, _, most_s = results.seconds(size.workers) if results else (0.0, 0.0, 0.0)
        if most_s - least_s > UNSURE * size.predicted_s:
            return ("whether results wait for the machines' links or for the client's",)
    return ()


# ------------------------------------------------------------------ the sentence


def _line(found: Prediction) -> str:
    asked = [size for size in found.sizes if size.workers in found.asked]
    missing = "; ".join(f"{plural(int(workers), 'worker')}: {why}" for workers, why in found.missing.items())
    if not asked:
        return f"Not predictable: none of the requested sizes could be simulated. {missing}"
    text = "; ".join(f"{plural(size.workers, 'worker')}: {_time(size)}" for size in asked)
    fastest = min(found.sizes, key=lambda size: size.predicted_s)
    cheapest = min(size.workers for size in found.sizes if size.predicted_s <= NEAR * fastest.predicted_s)
    text += f". {capital(plural(cheapest, 'worker'))} {'is' if cheapest == 1 else 'are'} "
    text += "the fastest" if cheapest == fastest.workers else "within 10 % of the fastest"
    if found.settings:
        text += f". Predicted for {pairs(found.settings)}"
    if found.fitted_at:
        text += f" from the work at {pairs(found.fitted_at)}"
    if found.other_settings:
        text += f"; also measured: {_others(found)} (choose with -a)"
    if beyond := [size.workers for size in asked if found.beyond_cores(size)]:
        text += f". On {plural(min(beyond), 'worker')} or more, tasks that compute would share cores: this host has "
        text += f"{found.cores}"
    text += f". Not predicted: {missing}" if missing else ""
    return f"Not to be relied on ({'; '.join(found.doubts)}): {text}" if found.doubts else text


def _others(found: Prediction) -> str:
    texts = [pairs(each) for each in found.other_settings[:MOST_SETTINGS]]
    more = len(found.other_settings) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _time(size: PredictedSize) -> str:
    limit = f"; held back by {' or '.join([size.limit, *size.also])}" if size.limit else ""
    return f"{seconds(size.predicted_s)} s ({seconds(size.low_s)} to {seconds(size.high_s)}{limit})"


def _error(trust: Trust) -> str:
    word = "slow" if trust.error > 0 else "fast"
    off = f"{percent(abs(trust.error))} too {word}"
    return f"{trust.workers} workers, predicted from {number(trust.largest_used)}, came out {off}"
