"""What is asked of a run: a checked sweep, its plan, and by what it may grow."""

from __future__ import annotations

import difflib
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scalescope import workloads
from scalescope.analysis.cost import Budget
from scalescope.analysis.knee import further
from scalescope.analysis.summary import summarise
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField, UnknownName
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding
from scalescope.model.partition_calls import DIVIDED, NPARTITIONS
from scalescope.model.sweep import (
    CLUSTER,
    DEFAULT_CLUSTER,
    WORKERS,
    ZERO_LENGTH,
    PlannedTrial,
    Point,
    Sweep,
    SweepParameters,
)
from scalescope.model.trial import Trial
from scalescope.model.workload import Workload
from scalescope.run import orchestrator, orchestrator_load, price_table
from scalescope.run.parameters import Execution, RunParameters, Storage
from scalescope.store.location import locate
from scalescope.store.store import Store

logger = logging.getLogger(__name__)

OWN = (NPARTITIONS, ZERO_LENGTH)
"""Keys of Dask's configuration that are this package's."""


@dataclass(frozen=True)
class ExtraTrial:
    """A trial that a sweep is to grow by.

    Attributes:
        point: What to run.
        repeat: Which trial of that point, from 0.
        warmup: Never a data point.
    """

    point: Point
    repeat: int
    warmup: bool = False


Growth = Callable[[Sequence[Trial]], Sequence[ExtraTrial]]
"""Says from all trials that have finished, in their order, what else to run. It must depend on nothing else: a run that
was killed comes to the same trials when it continues."""


@dataclass(frozen=True)
class RunRequest:
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


def check(given: Mapping[str, object], *, records: str = "") -> RunRequest:
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
    _check_kinds(sweep, workload, plan)
    _check_installed(sweep, workload, plan)
    _check_dask_keys(plan)
    locate(storage.store)
    _check_parallel(sweep, plan, execution.parallel_clusters)
    return RunRequest(
        sweep,
        workload,
        plan,
        storage.store,
        records,
        storage.fresh,
        min(execution.parallel_clusters, len(plan)),
        growing(sweep, workload, plan, execution),
        budget=_budget(execution.budget, sweep, plan),
    )


def _check_kinds(sweep: Sweep, workload: Workload, plan: Sequence[PlannedTrial]) -> None:
    for cluster in sweep.clusters(planned.point for planned in plan):
        if workload.kinds and cluster.kind not in workload.kinds:
            allowed = f"{' or '.join(workload.kinds)}: the workload {workload.name!r} cannot run elsewhere"
            raise InvalidField("cluster", cluster.kind, allowed)


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


def _check_dask_keys(plan: Sequence[PlannedTrial]) -> None:
    """Refuse keys that the present Dask does not know, in a section that it has: they would change nothing.

    Sections that it does not have are those of plugins. What the user's own files of Dask's configuration set is known,
    too; and so is everything in a section that is a list of names, such as environment variables.

    Raises:
        UnknownName: There is no such key.
    """
    here = [each.point for each in plan if Environment.parse(each.point.environment).present]
    asked = {name: value for point in here for name, value in point.dask_config.items() if name not in OWN}
    if not asked:
        return
    import dask
    import distributed  # noqa: F401  # it brings its own sections

    known = set(_leaves(dask.config.config))
    for name, value in asked.items():
        if name.replace("_", "-") not in known and _is_closed(name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise UnknownName(
                name,
                value,
                f"a key of Dask's configuration{meant}",
                next_step="a key of a plugin is known when a file in ~/.config/dask sets it",
            )


def _leaves(section: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        name = f"{prefix}{key}".replace("_", "-")
        yield name
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")


def _is_closed(name: str) -> bool:
    """Whether all keys of a section are known: Dask has it, or one of nearly that name, and its names are not free."""
    import dask

    first, *rest = name.replace("_", "-").split(".")
    section = dask.config.config.get(first)
    if section is None:
        return bool(difflib.get_close_matches(first, dask.config.config, n=1, cutoff=0.8))
    for part in rest:
        if not isinstance(section, Mapping):
            return True
        if not section or any(str(key).isupper() for key in section):
            return False
        section = {str(key).replace("_", "-"): value for key, value in section.items()}.get(part)
        if section is None:
            return True
    return False


def resolve(given: Mapping[str, object]) -> RunRequest:
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
    return Budget.from_mapping(data, price_table.load(), sweep.clusters(planned.point for planned in plan))


def growing(sweep: Sweep, workload: Workload, plan: Sequence[PlannedTrial], asked: Execution) -> Growth | None:
    """Growth by points where a knee is not known well enough, then by remedies and experiments; None for none."""
    if not asked.refine and not asked.verify and not asked.explain:
        return None
    planned = {trial.point.id for trial in plan}

    def grow(done: Sequence[Trial]) -> list[ExtraTrial]:
        tried = {trial.point.id for trial in done}  # spoilt ones are asked for again, but not run again
        between = [point for point in further(sweep, done) if point.id not in tried] if asked.refine else []
        points = between[: max(asked.refine - len(tried - planned), 0)]
        if not points:
            findings = diagnose(sweep, done).findings if asked.verify or asked.explain else ()
            values = remedies(findings, done) if asked.verify else []
            values += experiments(sweep, findings, done) if asked.explain else []
            points = [point for point in _points(sweep, workload, values) if point.id not in tried]
        rng = random.Random(f"{sweep.seed} {len(done)}")
        return [
            ExtraTrial(point, repeat, warmup)
            for turns, warmup in ((sweep.warmups, True), (sweep.repeats, False))
            for repeat in range(turns)
            for point in rng.sample(points, len(points))
        ]

    return grow


def remedies(findings: Sequence[Finding], done: Sequence[Trial]) -> list[dict[str, Scalar]]:
    """Where findings speak of a point, the values of that point with those that are the remedy."""
    points = {trial.point.id: trial.point for trial in done}
    gains = ((points[finding.points[0]], finding.gain) for finding in findings if finding.points)
    return [{**point.values, **gain.change} for point, gain in gains if gain and gain.change]


def experiments(sweep: Sweep, findings: Sequence[Finding], done: Sequence[Trial]) -> list[dict[str, Scalar]]:
    """Values of points beside that of which the first finding speaks, each with one thing changed.

    None for points that are such themselves; one worker only where that takes no longer than a trial may.
    """
    summaries = {each.point.id: each for each in summarise(done)}
    first = next((finding for finding in findings if finding.points), None)
    worst = summaries[first.points[0]] if first else None
    if worst is None or worst.metrics is None or worst.point.cluster or NPARTITIONS in worst.point.dask_config:
        return []
    point, changes = worst.point, list[dict[str, Scalar]]()
    if point.workers >= 4:
        changes.append({WORKERS: point.workers // 2})
    if point.workers >= 2 and worst.metrics.work_s / point.threads_per_worker < sweep.trial_timeout_s / 2:
        changes.append({WORKERS: 1})
    if isinstance(count := point.params.get("npartitions"), int):
        changes.append({"npartitions": 2 * count})
    elif worst.origin is not None and worst.origin.call in DIVIDED:
        changes.append({NPARTITIONS: 2 * worst.origin.partitions})
    if not point.environment and not point.groups:
        simulated: dict[str, Scalar] = {CLUSTER: DEFAULT_CLUSTER} if sweep.cluster.real_time else {}
        changes += [simulated] if simulated else []
        changes.append({**simulated, ZERO_LENGTH: True})
    return [{**point.values, **change} for change in changes]


def _points(sweep: Sweep, workload: Workload, found: Sequence[Mapping[str, Scalar]]) -> list[Point]:
    """Points with these values, each once; one that cannot be is said."""
    points = {}
    for values in found:
        try:
            point = sweep.point(values, workload)
        except InvalidField as problem:
            logger.warning("this cannot be run here: %s", problem)
        else:
            points[point.id] = point
    return list(points.values())


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
    available = len(orchestrator_load.cores())
    if shares > available:
        raise InvalidField(
            "parallel_clusters",
            shares,
            f"at most {available}, the cores to which clusters can be pinned here"
            if available
            else "1 on this system, which cannot pin a process to cores",
        )


def whole_plan(request: RunRequest, done: Mapping[str, Trial]) -> tuple[PlannedTrial, ...]:
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


def grown(request: RunRequest, store: Store, run_id: str) -> list[PlannedTrial]:
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
