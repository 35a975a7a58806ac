"""Costs of a sweep: an estimate before it, the sum while it runs, and a budget that ends it.

They count the time for which a trial holds its workers, and the time in which workers in batch jobs wait for the other
workers. The costs of a cluster before its workers arrive, and between trials, are not counted. On Kubernetes, a worker
costs the largest of its shares of a node's CPUs, memory and GPUs (fact `node_share`), or the whole node if unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated, Any

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster import ClusterSpec
from scalescope.model.node_labels import INSTANCE_TYPE, is_spot
from scalescope.model.parameters import Parameter, check, declared
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import number

DEFAULT = "default"


@dataclass(frozen=True)
class Prices:
    """The price table."""

    worker_hour: Mapping[str, float] = field(default_factory=dict)  # prices by partition, kind of cluster or `default`
    currency: str = ""
    node_hour: Mapping[str, float] = field(default_factory=dict)  # prices of whole Kubernetes nodes, by instance type
    spot_node_hour: Mapping[str, float] = field(default_factory=dict)  # prices of spot nodes; default: `node_hour`

    @classmethod
    def from_mapping(cls, data: object) -> Prices:
        given = fields.mapping("prices", data)
        fields.reject_unknown("prices", given, ["currency", *_TABLES])
        tables = {
            table: {
                name: fields.number(f"prices.{table}.{name}", price, minimum=0)
                for name, price in fields.mapping(f"prices.{table}", given.get(table, {})).items()
            }
            for table in _TABLES
        }
        return cls(currency=fields.text("prices.currency", given.get("currency", "EUR")), **tables)

    def of(self, spec: ClusterSpec, pods: Sequence[Mapping[str, Any]] = ()) -> float | None:
        """The price of a worker-hour; None if unknown.

        The price of `spec` is that of its most expensive partition, or of the nodes that its selector names. With
        `pods` (facts of a trial on Kubernetes), it is the mean price over their nodes.
        """
        if spec.here:
            return 0.0
        if pods:
            each = [self._of_node(pod) for pod in pods]
        else:
            labels = spec.node_labels
            each = [self._of_node({"instance_type": labels.get(INSTANCE_TYPE, ""), "spot": is_spot(labels)})]
        other = self._of_worker(spec) if None in each else None
        known = [other if price is None else price for price in each]
        return None if None in known else fmean(price for price in known if price is not None)

    def _of_worker(self, spec: ClusterSpec) -> float | None:
        other = self.worker_hour.get(spec.kind, self.worker_hour.get(DEFAULT))
        known = [self.worker_hour.get(name, other) for name in spec.priced_as()]
        return None if None in known else max(price for price in known if price is not None)

    def _of_node(self, pod: Mapping[str, Any]) -> float | None:
        name = pod.get("instance_type", "")
        whole = self.spot_node_hour.get(name, self.node_hour.get(name)) if pod.get("spot") else self.node_hour.get(name)
        return None if whole is None else whole * float(pod.get("node_share", 1.0))


_TABLES = ("worker_hour", "node_hour", "spot_node_hour")


@dataclass(frozen=True)
class Cost:
    """Cost of trials."""

    trials: int = 0
    time_s: float = 0.0  # sum of the trials' real seconds
    worker_hours: float = 0.0
    core_hours: float = 0.0
    money: float | None = 0.0  # cost in the currency of the prices; None if a price is unknown

    def __add__(self, other: Cost) -> Cost:
        known = self.money is not None and other.money is not None
        return Cost(
            self.trials + other.trials,
            self.time_s + other.time_s,
            self.worker_hours + other.worker_hours,
            self.core_hours + other.core_hours,
            (self.money or 0.0) + (other.money or 0.0) if known else None,
        )

    def mean(self) -> Cost:
        n, money = self.trials, self.money
        return Cost(
            1, self.time_s / n, self.worker_hours / n, self.core_hours / n, money if money is None else money / n
        )

    def sentence(self, prices: Prices) -> str:
        trials = f"{self.trials} trial" + ("" if self.trials == 1 else "s")
        money = "price not known" if self.money is None else f"{self.money:,.2f} {prices.currency}".rstrip()
        return f"{self.core_hours:,.1f} core-hours, {money}, {self.time_s / 3600:,.1f} h for {trials}"


@dataclass(frozen=True)
class SweepEstimate:
    """Estimated cost of a sweep."""

    cost: Cost
    measured: int  # number of planned trials whose cost is known from earlier trials of the same point

    def sentence(self, sweep: Sweep, prices: Prices) -> str:
        unknown = self.cost.trials - self.measured
        if not unknown:
            return f"about {self.cost.sentence(prices)}"
        counted = "each" if not self.measured else f"{unknown} of them, never measured,"
        limit = f"{number(sweep.trial_timeout_s)} s"
        if hold_s := sweep.cluster.hold_s:
            limit += f", after {number(hold_s)} s in which workers wait for the others"
        return f"at most {self.cost.sentence(prices)} ({counted} counted with the full time limit of {limit})"


def cost(
    spec: ClusterSpec,
    point: Point,
    seconds: float,
    prices: Prices,
    pods: Sequence[Mapping[str, Any]] = (),
    *,
    waited_s: float = 0.0,
    held_worker_s: float = 0.0,
    cores_per_worker: float | None = None,
) -> Cost:
    """The cost of a trial that waited `waited_s` real seconds for workers and held `held_worker_s` in that time.

    `cores_per_worker`: cores that the cluster provided for each worker; by default, those that `spec` reserves.
    """
    if spec.here:
        return Cost(1, seconds)
    hours = (point.workers * max(seconds - waited_s, 0.0) + held_worker_s) / 3600
    cores = hours * (cores_per_worker or spec.cores_per_worker(point.threads_per_worker))
    price = prices.of(spec, pods)
    return Cost(1, seconds, hours, cores, None if price is None else hours * price)


def spent(sweep: Sweep, trials: Iterable[Trial], prices: Prices) -> Cost:
    return Spending.of(sweep, trials, prices).total


def estimate(sweep: Sweep, plan: Iterable[PlannedTrial], prices: Prices, done: Sequence[Trial] = ()) -> SweepEstimate:
    """The cost of planned trials: for each, the mean of earlier trials (`done`) of its point, else its time limit."""
    so_far = Spending.of(sweep, done, prices)
    total, measured = Cost(), 0
    for planned in plan:
        known = so_far.mean(planned.point)
        measured += known is not None
        total += known or _bound(sweep, planned.point, prices)
    return SweepEstimate(total, measured)


def _bound(sweep: Sweep, point: Point, prices: Prices) -> Cost:
    spec = sweep.cluster_of(point)
    return cost(spec, point, sweep.trial_timeout_s, prices, held_worker_s=spec.held_worker_s(point.workers))


def _of_trial(sweep: Sweep, trial: Trial, prices: Prices) -> Cost:
    facts = trial.facts.get("cluster", {})
    spec, pods, held_s = sweep.cluster_of(trial.point), facts.get("pods", ()), facts.get("held_worker_s")
    if held_s is None:  # the cluster does not report it
        return cost(spec, trial.point, trial.real_s, prices, pods)
    return cost(
        spec,
        trial.point,
        trial.real_s,
        prices,
        pods,
        waited_s=facts["waited_for_workers_s"],
        held_worker_s=held_s,
        cores_per_worker=facts.get("cores_per_worker"),
    )


@dataclass
class Spending:
    """Cost of all trials so far, valid or not."""

    total: Cost = field(default_factory=Cost)
    points: dict[str, Cost] = field(default_factory=dict)  # costs by id of the point
    keys: set[str] = field(default_factory=set)  # keys of the trials counted

    @classmethod
    def of(cls, sweep: Sweep, trials: Iterable[Trial], prices: Prices) -> Spending:
        spending = cls()
        for trial in trials:
            spending.add(sweep, trial, prices)
        return spending

    def add(self, sweep: Sweep, trial: Trial, prices: Prices) -> None:
        one, point = _of_trial(sweep, trial, prices), trial.point.id
        self.total += one
        self.points[point] = self.points.get(point, Cost()) + one
        self.keys.add(trial.key)

    def mean(self, point: Point) -> Cost | None:
        known = self.points.get(point.id)
        return known and known.mean()


@dataclass(frozen=True)
class Budget:
    """Highest cost of a sweep; None is no limit."""

    core_hours: Annotated[float | None, Parameter("Hours of cores.", minimum=0)] = None
    money: Annotated[float | None, Parameter("Money, in the currency of the price table.", minimum=0)] = None
    hours: Annotated[float | None, Parameter("Hours of measuring.", minimum=0)] = None
    prices: Prices = field(default_factory=Prices)

    @classmethod
    def from_mapping(cls, data: object, prices: Prices, clusters: Iterable[ClusterSpec] = ()) -> Budget:
        """Limits by name; raises `InvalidField` if money is limited and a cluster has no price."""
        budget = check(cls, fields.mapping("budget", data), "budget")
        for spec in clusters if budget.money is not None else ():
            if prices.of(spec) is None:
                raise InvalidField(
                    "budget.money",
                    budget.money,
                    f"no limit of money, since a worker-hour of {', '.join(spec.priced_as())} has no price",
                    next_step="add that price to the price table, or set budget.core_hours",
                )
        return replace(budget, prices=prices)

    @property
    def limits(self) -> dict[str, float]:
        limits = {each.name: getattr(self, each.name) for each in declared(Budget)}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def stops(self, sweep: Sweep, spending: Spending, planned: PlannedTrial) -> str:
        """Why a trial would exceed the budget; else empty. A point not yet measured counts with its time limit."""
        so_far, known = spending.total, spending.mean(planned.point)
        after = so_far + (known or _bound(sweep, planned.point, self.prices))
        for unit, limit, now, then in (
            ("core-hours", self.core_hours, so_far.core_hours, after.core_hours),
            (self.prices.currency or "money", self.money, so_far.money, after.money),
            ("h", self.hours, so_far.time_s / 3600, after.time_s / 3600),
        ):
            if limit is None or now is None or then is None:
                continue
            if now >= limit or then > limit:
                takes = f"about {number(then - now, 2)}"
                if not known:
                    takes = f"up to {number(then - now, 2)} (its time limit is {number(sweep.trial_timeout_s)} s; "
                    takes += "a lower `trial_timeout_s` allows more)"
                return f"{number(now)} of {number(limit)} {unit} are spent, and the next trial would use {takes}"
        return ""
