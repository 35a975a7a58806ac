"""What a sweep costs: an estimate before it, the sum while it runs, and a budget that ends it. Pure functions.

Workers are held from the start of a trial to its end; what a cluster costs before its workers have arrived and between
trials is not in these sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster import ClusterSpec
from scalescope.model.parameters import Parameter, check, declared
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import Trial

DEFAULT = "default"


@dataclass(frozen=True)
class Prices:
    """What an hour of a worker costs.

    Attributes:
        worker_hour: Money by partition or by kind of cluster; `default` is for all others.
        currency: As it is shown.
    """

    worker_hour: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""

    @classmethod
    def from_mapping(cls, data: object) -> Prices:
        """Build a table from what YAML carries: `currency` and `worker_hour`.

        Raises:
            InvalidField: A field is unknown, or a price is no number from 0.
        """
        given = fields.mapping("prices", data)
        fields.reject_unknown("prices", given, ["currency", "worker_hour"])
        table = fields.mapping("prices.worker_hour", given.get("worker_hour", {}))
        return cls(
            {name: fields.number(f"prices.worker_hour.{name}", price, minimum=0) for name, price in table.items()},
            fields.text("prices.currency", given.get("currency", "EUR")),
        )

    def of(self, spec: ClusterSpec) -> float | None:
        """The price of a worker-hour there; the dearest of several partitions; None where it is not known."""
        if spec.here:
            return 0.0
        names = [name for name in str(getattr(spec, "partition", "")).split(",") if name] or [spec.kind]
        known = [self.worker_hour.get(name, self.worker_hour.get(DEFAULT)) for name in names]
        return None if None in known else max(price for price in known if price is not None)


@dataclass(frozen=True)
class Cost:
    """What trials cost.

    Attributes:
        trials: How many.
        time_s: Their real seconds, one after the other.
        worker_hours: Hours of workers held.
        core_hours: Hours of cores held.
        money: In the currency of the prices; None where a price is not known.
    """

    trials: int = 0
    time_s: float = 0.0
    worker_hours: float = 0.0
    core_hours: float = 0.0
    money: float | None = 0.0

    def __add__(self, other: Cost) -> Cost:
        known = self.money is not None and other.money is not None
        return Cost(
            self.trials + other.trials,
            self.time_s + other.time_s,
            self.worker_hours + other.worker_hours,
            self.core_hours + other.core_hours,
            (self.money or 0.0) + (other.money or 0.0) if known else None,
        )

    def sentence(self, prices: Prices) -> str:
        """For people."""
        money = "price not known" if self.money is None else f"{self.money:,.2f} {prices.currency}".rstrip()
        return f"{self.core_hours:,.1f} core-hours, {money}, {self.time_s / 3600:,.1f} h for {self.trials} trials"


@dataclass(frozen=True)
class Estimate:
    """What a sweep will cost.

    Attributes:
        cost: Of all trials.
        measured: Trials that are counted with what trials of the same point took.
    """

    cost: Cost
    measured: int

    def sentence(self, sweep: Sweep, prices: Prices) -> str:
        """For people; says when it is only a bound."""
        unknown = self.cost.trials - self.measured
        if not unknown:
            return f"about {self.cost.sentence(prices)}"
        counted = "each is" if not self.measured else f"{unknown} that were never measured are"
        return f"at most {self.cost.sentence(prices)} ({counted} counted with the limit of {sweep.trial_timeout_s:g} s)"


def cost(spec: ClusterSpec, point: Point, seconds: float, prices: Prices) -> Cost:
    """What a trial costs that takes so long.

    Args:
        spec: Where it runs.
        point: What runs.
        seconds: Real seconds.
        prices: Of worker-hours.
    """
    if spec.here:
        return Cost(1, seconds)
    hours = point.workers * seconds / 3600
    per_job, job_workers = getattr(spec, "cores", 0), getattr(spec, "job_workers", 1)
    cores = per_job / job_workers if per_job else point.threads_per_worker
    price = prices.of(spec)
    return Cost(1, seconds, hours, hours * cores, None if price is None else hours * price)


def spent(sweep: Sweep, trials: Iterable[Trial], prices: Prices) -> Cost:
    """What trials have cost, whatever came of them."""
    each = (cost(sweep.cluster_of(trial.point), trial.point, trial.real_s, prices) for trial in trials)
    return sum(each, Cost())


def estimate(sweep: Sweep, plan: Iterable[PlannedTrial], prices: Prices, done: Sequence[Trial] = ()) -> Estimate:
    """What trials will cost: as long as earlier ones of the same point took on average, or else their time limit.

    Args:
        sweep: The question.
        plan: Trials to run.
        prices: Of worker-hours.
        done: Trials of the same sweep, or of one like it, that were measured.
    """
    took = _took(done)
    total, measured = Cost(), 0
    for planned in plan:
        seconds = took.get(planned.point.id)
        measured += seconds is not None
        total += cost(
            sweep.cluster_of(planned.point),
            planned.point,
            sweep.trial_timeout_s if seconds is None else seconds,
            prices,
        )
    return Estimate(total, measured)


def _took(done: Iterable[Trial]) -> dict[str, float]:
    """Mean real seconds by point; what a driver needs before and after a trial is not in them."""
    seconds: dict[str, list[float]] = {}
    for trial in done:
        seconds.setdefault(trial.point.id, []).append(trial.real_s)
    return {point: fmean(values) for point, values in seconds.items()}


@dataclass(frozen=True)
class Budget:
    """What a sweep may cost; a limit that is None does not hold.

    Attributes:
        prices: Of worker-hours.
    """

    core_hours: Annotated[float | None, Parameter("Hours of cores.", minimum=0)] = None
    money: Annotated[float | None, Parameter("Money, in the currency of the price table.", minimum=0)] = None
    hours: Annotated[float | None, Parameter("Hours of measuring.", minimum=0)] = None
    prices: Prices = field(default_factory=Prices)

    @classmethod
    def from_mapping(cls, data: object, prices: Prices, clusters: Iterable[ClusterSpec] = ()) -> Budget:
        """Build a budget from what YAML carries.

        Args:
            data: Limits by name.
            prices: Of worker-hours.
            clusters: On which it must hold.

        Raises:
            InvalidField: A limit is unknown or no number from 0; or it is one of money, and a price is not known.
        """
        budget = check(cls, fields.mapping("budget", data), "budget")
        for spec in clusters if budget.money is not None else ():
            if prices.of(spec) is None:
                place = getattr(spec, "partition", "") or spec.kind
                raise InvalidField(
                    "budget.money",
                    budget.money,
                    f"no limit of money, since a worker-hour of {place} has no price",
                    next_step="add it to the price table, or set budget.core_hours",
                )
        return replace(budget, prices=prices)

    @property
    def limits(self) -> dict[str, float]:
        """Those that hold, as `from_mapping` takes them."""
        given = {each.name: getattr(self, each.name) for each in declared(Budget)}
        return {name: limit for name, limit in given.items() if limit is not None}

    def stops(self, sweep: Sweep, done: Sequence[Trial], planned: PlannedTrial) -> str:
        """Why a trial must not run any more; an empty string where it may.

        It may not when what has been spent has reached a limit, or when the trial would exceed it, as far as its point
        has been measured.
        """
        so_far = spent(sweep, done, self.prices)
        seconds = _took(done).get(planned.point.id, 0.0)
        after = so_far + cost(sweep.cluster_of(planned.point), planned.point, seconds, self.prices)
        for unit, limit, now, then in (
            ("core-hours", self.core_hours, so_far.core_hours, after.core_hours),
            (self.prices.currency or "money", self.money, so_far.money, after.money),
            ("h", self.hours, so_far.time_s / 3600, after.time_s / 3600),
        ):
            if limit is None or now is None or then is None:
                continue
            if now >= limit or then > limit:
                return f"{now:.3g} of {limit:g} {unit} are spent, and the next trial takes about {then - now:.2g}"
        return ""
