"""What is asked of a run: a checked sweep, its plan, and by what it may grow."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scalescope import workloads
from scalescope.analysis.cost import Budget
from scalescope.analysis.knee import further
from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.sweep import PlannedTrial, Point, Sweep, SweepParameters
from scalescope.model.trial import Trial
from scalescope.model.workload import Workload
from scalescope.run import orchestrator, prices, quiet
from scalescope.run.parameters import Execution, RunParameters, Storage
from scalescope.store.location import locate
from scalescope.store.store import Store


@dataclass(frozen=True)
class Ask:
    """A trial that a sweep is to grow by.

    Attributes:
        point: What to run.
        repeat: Which trial of that point, from 0.
        warmup: Never a data point.
    """

    point: Point
    repeat: int
    warmup: bool = False


Growth = Callable[[Sequence[Trial]], Sequence[Ask]]
"""Says from all trials that have finished, in their order, what else to run. It must depend on nothing else: a run that
was killed comes to the same trials when it continues."""


@dataclass(frozen=True)
class Request:
    """A sweep that may be started: everything in it has been checked.

    Attributes:
        sweep: The question.
        workload: What it runs.
        plan: Its trials in their order.
        store: Address of the store; empty is the default.
        records: Address of the raw records; empty is beside the store.
        fresh: Begin a new run, even where one can be continued.
        parallel_clusters: Clusters that share the trials and run at the same time.
        grow: Says what to run next, when all planned trials have finished; None adds nothing.
        study: Id of the study that it is made for; empty where there is none.
        budget: What it may cost; None is no limit.
    """

    sweep: Sweep
    workload: Workload
    plan: tuple[PlannedTrial, ...]
    store: str = field(default="", repr=False)
    records: str = ""
    fresh: bool = False
    parallel_clusters: int = 1
    grow: Growth | None = None
    study: str = ""
    budget: Budget | None = None

    def open_store(self) -> Store:
        """Connect to the store; the caller closes it."""
        return Store.open(self.store, self.records)


def check(given: Mapping[str, object], *, records: str = "") -> Request:
    """Check a run completely; nothing is started and nothing is written.

    Args:
        given: Parameters of a run (`RunParameters`) by name; a saved cluster or store is not loaded here.
        records: Address of the raw records; empty is beside the store.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    parameters.reject_unknown(given, RunParameters)
    sweep = Sweep.from_mapping(parameters.part(SweepParameters, given))
    execution = parameters.check(Execution, parameters.part(Execution, given))
    storage = parameters.check(Storage, parameters.part(Storage, given))
    workload = workloads.load(sweep.workload)
    plan = sweep.plan(workload)
    _check_installed(sweep, workload, plan)
    locate(storage.store)
    _check_parallel(sweep, plan, execution.parallel_clusters)
    return Request(
        sweep,
        workload,
        plan,
        storage.store,
        records,
        storage.fresh,
        min(execution.parallel_clusters, len(plan)),
        refining(sweep, plan, execution.refine) if execution.refine else None,
        budget=_budget(execution.budget, sweep, plan),
    )


def _check_installed(sweep: Sweep, workload: Workload, plan: Sequence[PlannedTrial]) -> None:
    """Refuse what the present environment lacks packages for; in others, the driver finds out.

    Raises:
        UsageError: A package is not installed.
    """
    here = [planned.point for planned in plan if Environment.parse(planned.point.environment).present]
    for cluster in sweep.clusters(here):
        cluster.require()
    if here:
        workloads.check_installed(workload)


def resolve(given: Mapping[str, object]) -> Request:
    """Load the saved cluster and store that parameters name, and check everything.

    Raises:
        InvalidField: The first thing that is wrong.
        InfrastructureError: What is saved cannot be loaded.
    """
    given = dict(given)
    if "cluster" in given:
        given["cluster"] = orchestrator.saved_cluster(given["cluster"])
    given["store"], records = orchestrator.saved_store(given.get("store", ""))
    return check(given, records=records)


def _budget(data: object, sweep: Sweep, plan: Sequence[PlannedTrial]) -> Budget | None:
    if not data:
        return None
    return Budget.from_mapping(data, prices.load(), sweep.clusters(planned.point for planned in plan))


def refining(sweep: Sweep, plan: Sequence[PlannedTrial], count: int) -> Growth:
    """Growth by up to `count` points, where a knee is not known well enough."""
    planned = {trial.point.id for trial in plan}

    def grow(done: Sequence[Trial]) -> list[Ask]:
        tried = {trial.point.id for trial in done}  # spoilt ones are asked for again, but not run again
        points = [point for point in further(sweep, done) if point.id not in tried][: count - len(tried - planned)]
        rng = random.Random(f"{sweep.seed} {len(done)}")
        return [
            Ask(point, repeat, warmup)
            for turns, warmup in ((sweep.warmups, True), (sweep.repeats, False))
            for repeat in range(turns)
            for point in rng.sample(points, len(points))
        ]

    return grow


def _check_parallel(sweep: Sweep, plan: Sequence[PlannedTrial], shares: int) -> None:
    if shares == 1:
        return
    for cluster in sweep.clusters(planned.point for planned in plan):
        if cluster.real_time:
            raise InvalidField(
                "parallel_clusters",
                shares,
                f"1 on a {cluster.kind} cluster: it measures real time, and another cluster would use the same cores",
                next_step="simulated clusters can run side by side",
            )
    available = len(quiet.cores())
    if shares > available:
        raise InvalidField(
            "parallel_clusters",
            shares,
            f"at most {available}, the cores to which clusters can be pinned here"
            if available
            else "1 on this system, which cannot pin a process to cores",
        )


def whole_plan(request: Request, done: Mapping[str, Trial]) -> tuple[PlannedTrial, ...]:
    """The planned trials, and those by which the sweep has grown so far.

    Args:
        request: The sweep.
        done: Finished trials by key, as the store has them.
    """
    plan = list(request.plan)
    while request.grow is not None and all(planned.key in done for planned in plan):
        asked = request.grow([done[planned.key] for planned in plan])
        if not asked:
            break
        plan += [PlannedTrial(i, ask.point, ask.repeat, ask.warmup) for i, ask in enumerate(asked, len(plan))]
    return tuple(plan)


def grown(request: Request, store: Store, run_id: str) -> list[PlannedTrial]:
    """Trials to run after all known ones have finished; none when there is nothing more to ask.

    Raises:
        StoreError: The store refuses.
    """
    if request.grow is None:
        return []
    done = store.finished(run_id)
    plan = whole_plan(request, done)
    waiting = [planned for planned in plan if planned.key not in done]
    if waiting:
        store.extend(run_id, len(plan))
    return waiting
