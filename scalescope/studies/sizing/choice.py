"""Chooses among simulated clusters: the fastest, the cheapest, and the smallest that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import Any

from scalescope.analysis.distributions import NORMAL
from scalescope.analysis.task_lengths import TooLong
from scalescope.model import words
from scalescope.model.mapping import Mapped
from scalescope.model.words import number, percent, plural, seconds
from scalescope.studies.prediction.judge import LEVEL, MODEL_OF_VIRTUAL, PredictedSize

NEAR = 1.05  # configurations within this factor of the fastest, or of the cheapest, count as equally good
LEAST_ERROR = 1e-3  # smallest relative error that is assumed of a prediction
UNMEASURED = 0.2  # relative error added if workers with this number of threads were not measured
LIKELY = 0.8  # least chance of keeping the deadline; if no configuration has it, the likeliest is taken
SUREST = 0.99  # highest chance of keeping the deadline that is printed
PAYS = 0.9  # an unmeasured number of threads is worth measuring if its time is below this share of the best known


@dataclass(frozen=True)
class Configuration(Mapped):
    """One cluster; times are seconds."""

    workers: int
    threads: int  # threads of each worker
    memory_mb: int  # memory limit of each worker, in MiB, that fits the workload; 0: unknown
    predicted_s: float
    low_s: float  # ends of the interval in which 80 % of measurements are expected
    high_s: float
    core_hours: float
    money: float | None = None  # None: price unknown, or nothing to pay
    limit: str = ""  # code of the finding that costs most; empty: nothing limits it
    limit_text: str = ""
    also: tuple[str, ...] = ()  # codes of findings that cost nearly as much
    measured_s: float | None = None
    measured_threads: bool = True  # whether workers with this number of threads were measured
    unfit: str = ""  # why the configuration exceeds a limit of `Wanted`; empty: it does not

    @property
    def cores(self) -> int:
        return self.workers * self.threads

    @property
    def cost(self) -> float:
        return self.core_hours if self.money is None else self.money

    def chance(self, deadline_s: float) -> float:
        """The chance, from 0 to 1, that a run on this cluster keeps the deadline."""
        error = math.log(self.high_s / self.predicted_s) / NORMAL.inv_cdf((1 + LEVEL) / 2)
        return NORMAL.cdf(math.log(deadline_s / self.predicted_s) / max(error, LEAST_ERROR))

    def in_time(self, deadline_s: float) -> str:
        """Text of the chance, from `0 %` to `99 %`."""
        return percent(min(self.chance(deadline_s), SUREST))

    @property
    def shape(self) -> str:
        memory = f" × {words.size(self.memory_mb * 2**20)}" if self.memory_mb else ""
        return f"{plural(self.workers, 'worker')} × {plural(self.threads, 'thread')}{memory}"


@dataclass(frozen=True)
class SecondGroup(Mapped):
    """Extra workers for one stage that has few tasks and needs more memory than all other stages."""

    prefix: str
    tasks: int
    workers: int
    memory_mb: int  # memory limit, in MiB, of each extra worker, which has one thread
    others_mb: int  # memory limit, in MiB, of each other worker


@dataclass(frozen=True)
class Measurement(Mapped):
    """A short measurement that would make the answer surer."""

    workers: int
    threads: int
    why: str


@dataclass(frozen=True)
class Sizing(Mapped):
    """The answer: all configurations, and the chosen one."""

    configurations: tuple[Configuration, ...]  # fewest cores first
    best: Configuration | None
    cheapest: Configuration | None
    smallest: Configuration | None
    chosen: Configuration | None  # the one whose code is printed
    unsure: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    second_group: SecondGroup | None = None
    too_long: TooLong | None = None
    currency: str = ""
    form: str = "local"  # default form of the code
    code: Mapping[str, str] = field(default_factory=dict)  # Python code or text of a file, by form


@dataclass(frozen=True)
class Wanted:
    """Limits that a configuration must keep; None is no limit."""

    cores: int
    memory: float | None = None  # bytes of a worker
    together: float | None = None  # bytes of all workers
    deadline_s: float | None = None
    budget: float | None = None
    cheapest: bool = False

    def there(self, workers: int) -> float:
        """Bytes of memory that each worker may have if there are `workers` workers."""
        return min(self.memory or math.inf, (self.together or math.inf) / workers)

    def unfit(self, found: Configuration) -> str:
        """Text naming the limit that the configuration exceeds; empty if it keeps all."""
        limit = found.memory_mb * 2.0**20
        if self.memory is not None and limit > self.memory:
            return f"a worker needs {words.size(limit)} of memory"
        if self.together is not None and found.workers * limit > self.together:
            return f"all workers need {words.size(found.workers * limit)} of memory"
        if self.deadline_s is not None and found.predicted_s > self.deadline_s:
            return "it takes longer than the deadline"
        if self.budget is not None and found.cost > self.budget:
            return "it costs more than the budget"
        return ""


def configuration(
    size: PredictedSize, threads: int, memory_bytes: float, *, money_factor: float, measured: bool
) -> Configuration:
    """The configuration with this size, with the measured time if there is one, else the predicted time.

    `money_factor`: price of a worker divided by that of a measured worker. `measured`: whether workers with this number
    of threads were measured.
    """
    taken_s = size.measured_s if measured and size.measured_s else size.predicted_s
    factor = taken_s / size.predicted_s
    further = 0.0 if measured else math.log1p(UNMEASURED)
    low, high = (
        math.hypot(math.log(max(end / size.predicted_s, LEAST_ERROR)), further) for end in (size.low_s, size.high_s)
    )
    return Configuration(
        size.workers,
        threads,
        math.ceil(memory_bytes / 2**20),
        taken_s,
        taken_s * math.exp(-low),
        taken_s * math.exp(high),
        size.workers * threads * taken_s / 3600,
        None if size.money is None else size.money * factor * money_factor,
        size.limit,
        size.limit_text,
        size.also,
        size.measured_s if measured else None,
        measured,
    )


def choose(found: Sequence[Configuration], wanted: Wanted) -> Sizing:
    judged = [replace(each, unfit=wanted.unfit(each)) for each in found]
    judged.sort(key=lambda each: (each.cores, each.workers))
    fits = [each for each in judged if not each.unfit]
    if not fits:
        return Sizing(tuple(judged), None, None, None, None)
    best = _least(fits, lambda each: each.predicted_s, _simplest)
    cheapest = _least(fits, lambda each: each.cost, lambda each: (each.predicted_s, *_simplest(each)))
    smallest = min(fits, key=lambda each: (each.cores, each.memory_mb, each.predicted_s))
    chosen = cheapest if wanted.cheapest else best
    if (deadline_s := wanted.deadline_s) is not None:
        most = max(each.chance(deadline_s) for each in fits)
        likely = [each for each in fits if each.chance(deadline_s) >= min(LIKELY, most)]
        chosen = min(likely, key=lambda each: (each.cost, each.predicted_s))
    return Sizing(tuple(judged), best, cheapest, smallest, chosen)


def contenders(
    found: Sequence[Configuration], wanted: Wanted, draws: Mapping[tuple[int, int], Sequence[float]]
) -> list[Configuration]:
    """The chosen configuration, and those that further simulations may show to be better.

    `draws`: seconds of each simulation, by workers and threads. A configuration may be better if `choose` takes it when
    its time is at the lower end of its interval and the time of the chosen one is at the upper end.
    """
    chosen = choose(found, wanted).chosen
    if chosen is None:
        return []
    errors, shape = _errors(draws), (chosen.workers, chosen.threads)

    def is_chosen(one: Configuration) -> bool:
        sides = {shape: 1.0, (one.workers, one.threads): -1.0}
        best = choose([_moved(each, sides, errors) for each in found], wanted).chosen
        return best is not None and (best.workers, best.threads) == (one.workers, one.threads)

    return [each for each in found if (each.workers, each.threads) == shape or is_chosen(each)]


def _moved(
    found: Configuration, sides: Mapping[tuple[int, int], float], errors: Mapping[tuple[int, int], float]
) -> Configuration:
    shape = found.workers, found.threads
    if found.measured_s or shape not in sides:
        return found
    factor = math.exp(sides[shape] * NORMAL.inv_cdf((1 + LEVEL) / 2) * errors.get(shape, 0.0))
    times = {name: factor * getattr(found, name) for name in ("predicted_s", "low_s", "high_s", "core_hours")}
    return replace(found, **times, money=None if found.money is None else factor * found.money)


def _errors(draws: Mapping[tuple[int, int], Sequence[float]]) -> dict[tuple[int, int], float]:
    """Relative standard error of each mean of draws. A variance below the pooled one is raised to it: draws are few."""
    own = {shape: variance(map(math.log, each)) for shape, each in draws.items() if len(each) > 1}
    pooled = fmean(own.values()) if own else MODEL_OF_VIRTUAL**2
    return {shape: math.sqrt(max(pooled, own.get(shape, 0.0)) / len(each)) for shape, each in draws.items() if each}


def _least(
    found: Sequence[Configuration], value: Callable[[Configuration], float], order: Callable[[Configuration], Any]
) -> Configuration:
    """The first by `order` among the configurations within 5 % of the least value."""
    least = min(map(value, found))
    return min((each for each in found if value(each) <= NEAR * least), key=order)


def _simplest(found: Configuration) -> tuple[float, ...]:
    """Sort key of equally good configurations: fewest cores, then measured threads, then least memory."""
    return found.cores, not found.measured_threads, found.workers * found.memory_mb, found.workers


def surer(found: Sizing, *, sizes: Sequence[int], threads: int) -> tuple[Measurement, ...]:
    """Up to two measurements that could change the choice. `sizes`: measured numbers of workers, with `threads`."""
    chosen, known = found.chosen, [each for each in found.configurations if not each.unfit and each.measured_threads]
    if chosen is None:
        return ()
    wanted, largest = [], max(sizes)
    fastest = min((each.predicted_s for each in known), default=math.inf)
    if not chosen.measured_threads and chosen.predicted_s <= PAYS * fastest:
        workers = max(largest * threads // chosen.threads, 1)
        why = f"workers with {plural(chosen.threads, 'thread')} were not measured, and how well tasks share an "
        why += "interpreter is not known"
        wanted.append(Measurement(workers, chosen.threads, why))
    if len(sizes) == 1 and chosen.workers != largest:
        other = 2 * largest if chosen.workers > largest else max(largest // 2, 1)
        wanted.append(Measurement(other, threads, "one measured size does not tell how the times grow"))
    return tuple(wanted)


def line(found: Sizing, wanted: Wanted) -> str:
    chosen = found.chosen
    if chosen is None:
        closest = min(found.configurations, key=lambda each: each.predicted_s)
        return f"No cluster of up to {wanted.cores:,} cores fits: {closest.shape} comes closest, but {closest.unfit}"
    names = [name for name in ("best", "cheapest", "smallest") if getattr(found, name) == chosen]
    role = {"best": "the fastest", "cheapest": "the cheapest", "smallest": "the smallest that fits"}
    said = " and ".join(role[name] for name in names)
    if wanted.deadline_s is not None:
        keeps = f"keeps the deadline in {chosen.in_time(wanted.deadline_s)} of runs"
        said = f"{said}; {keeps}" if said else f"the cheapest that {keeps}"
    text = f"{chosen.shape}: {seconds(chosen.predicted_s)} s ({seconds(chosen.low_s)} to {seconds(chosen.high_s)}), "
    text += f"{price(chosen, found.currency)}; {said}"
    limit = f", held back by {' or '.join([chosen.limit, *chosen.also])}" if chosen.limit else ""
    return f"{text}{limit}" + (f". {words.capital(found.too_long.text)}" if found.too_long else "")


def price(found: Configuration, currency: str) -> str:
    if found.money is None:
        return f"{number(found.core_hours, 2)} core-hours"
    return f"{found.money:,.2f} {currency}".rstrip()
