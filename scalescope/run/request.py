"""Request of a run, checked once, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scalescope import workloads
from scalescope.analysis.cost import Budget
from scalescope.environments.git import with_commits
from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import Trial
from scalescope.model.workload import Workload
from scalescope.run import dask_keys, orchestrator, orchestrator_load, price_table
from scalescope.run.growth import Growth, SweepGrowth
from scalescope.run.parameters import Execution, Reported, RunParameters
from scalescope.store.location import locate
from scalescope.store.store import Store


@dataclass(frozen=True)
class RunRequest:
    """A checked sweep that may be started; it can be sent to another process."""

    sweep: Sweep
    workload: Workload
    plan: tuple[PlannedTrial, ...]  # trials in the order in which they run
    store: str = field(default="", repr=False)  # address of the store; empty: the default store
    records: str = ""  # address of the raw records; empty: next to the store
    report: str = ""  # path or address of the HTML file to write; empty: none
    fresh: bool = False  # True: begin a new run even if one can be continued
    parallel_clusters: int = 1  # clusters that share the trials and run at the same time
    grow: Growth | None = None  # chooses further trials when all planned ones have finished
    study: str = ""  # id of the study that the run belongs to; empty: none
    budget: Budget | None = None  # limit of the run's cost; None: no limit
    own_drivers: bool = False  # True if each trial gets a new driver

    def open_store(self) -> Store:
        return Store.open(self.store, self.records)

    def whole_plan(self, done: Mapping[str, Trial]) -> tuple[PlannedTrial, ...]:
        """The planned trials, and those that the finished trials (by key) add."""
        plan = list(self.plan)
        while self.grow is not None and all(planned.key in done for planned in plan):
            extra = self.grow([done[planned.key] for planned in plan])
            if not extra:
                break
            plan += [PlannedTrial(i, each.point, each.repeat, each.warmup) for i, each in enumerate(extra, len(plan))]
        return tuple(plan)

    def grown(self, store: Store, run_id: str) -> list[PlannedTrial]:
        """Trials to run after all known ones have finished; the store gets the new number of trials."""
        if self.grow is None:
            return []
        done = store.finished(run_id)
        plan = self.whole_plan(done)
        waiting = [planned for planned in plan if planned.key not in done]
        if waiting:
            store.extend(run_id, len(plan))
        return waiting


def check(given: Mapping[str, object], *, records: str = "") -> RunRequest:
    """Check the parameters of a run (`RunParameters`); starts nothing and loads no blocks. Raises `InvalidField`."""
    parameters.reject_unknown(given, RunParameters)
    given = with_commits(given)
    sweep = Sweep.from_mapping(parameters.part(Sweep, given))
    execution = parameters.check(Execution, parameters.part(Execution, given))
    storage = parameters.check(Reported, parameters.part(Reported, given))
    workload = workloads.load(sweep.workload)
    plan = sweep.plan(workload)
    _check_clusters(sweep, workload, plan, execution.parallel_clusters)
    here = [each.point for each in plan if Environment.parse(each.point.environment).present]
    for cluster in sweep.clusters(here):
        cluster.require()
    if here:  # for other environments, the driver checks this
        workloads.check_installed(workload)
        dask_keys.check(here)
    locate(storage.store)
    grows = execution.refine or execution.verify or execution.explain
    return RunRequest(
        sweep,
        workload,
        plan,
        store=storage.store,
        records=records,
        report=storage.report,
        fresh=storage.fresh,
        parallel_clusters=min(execution.parallel_clusters, len(plan)),
        grow=SweepGrowth.of(sweep, workload, plan, execution) if grows else None,
        budget=_budget(execution.budget, sweep, plan),
    )


def resolve(given: Mapping[str, object]) -> RunRequest:
    """Load the saved cluster and store that parameters name, and check everything."""
    loaded, records = orchestrator.load_saved(given)
    request = check(loaded, records=records)
    if request.grow is not None:
        return request
    # even if no option asks for more trials, a single sweep may add short experiments; studies and nightly runs do not
    return replace(request, grow=SweepGrowth.of(request.sweep, request.workload, request.plan, Execution()))


def _budget(data: object, sweep: Sweep, plan: Sequence[PlannedTrial]) -> Budget | None:
    if not data:
        return None
    return Budget.from_mapping(data, price_table.load(), sweep.clusters(planned.point for planned in plan))


def _check_clusters(sweep: Sweep, workload: Workload, plan: Sequence[PlannedTrial], shares: int) -> None:
    for cluster in sweep.clusters(planned.point for planned in plan):
        if workload.kinds and cluster.kind not in workload.kinds:
            allowed = f"{' or '.join(workload.kinds)}: the workload {workload.name!r} cannot run elsewhere"
            raise InvalidField("cluster", cluster.kind, allowed)
        if shares > 1 and cluster.real_time:
            raise InvalidField(
                "parallel_clusters",
                shares,
                f"1 on a {cluster.kind} cluster: it measures real time, and another cluster would use the same cores",
                next_step="simulated clusters can run side by side",
            )
    available = len(orchestrator_load.cores())
    if shares > max(available, 1):
        most = f"at most {available}, the cores to which clusters can be pinned here"
        none = "1 on this system, which cannot pin a process to cores"
        raise InvalidField("parallel_clusters", shares, most if available else none)
