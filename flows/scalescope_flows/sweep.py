"""The Prefect flow that carries out a sweep: thin tasks around `scalescope.run.engine`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import get_run_logger, runtime, tags, task
from prefect.artifacts import create_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import PrefectException
from prefect.states import Completed
from prefect.tasks import Task, exponential_backoff
from pydantic import SkipValidation

import scalescope_blocks
from scalescope.errors import BudgetSpent, ClusterError, InfrastructureError
from scalescope.model.environment import Environment
from scalescope.model.finding import Verdict
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import Trial, TrialState
from scalescope.report import html
from scalescope.run import engine, quiet
from scalescope.run.engine import Request, Session
from scalescope.run.progress import Listener, Meter, Progress, current_listener, current_meter
from scalescope.run.syntax import names_block, names_store
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from scalescope_flows import publishing
from scalescope_flows.local import local_flow

START_TIMEOUT_S, BUILD_TIMEOUT_S, CLEAR_UP_S = 900.0, 3600.0, 420.0
"""Seconds for a driver to start, with its environment where that is new, beyond what its cluster may take to open;
seconds to build all environments that are known beforehand; seconds that a trial may take beyond its own limit and that
of its workers' arrival, which the driver enforces, to scale the cluster and to take in the records. Prefect's timeouts
come after all those of the driver."""


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep.

    Attributes:
        run_id: Of the run in the store; `scalescope show RUN_ID` shows it.
        verdict: The one line.
        severity: Of the worst finding: `high`, `medium`, `low` or `info`.
        valid: Trials that are data points.
        failed: Trials whose workload raised.
        invalid: Trials in which the machine misbehaved.
        resumed: Trials among these that an earlier attempt had finished.
        store: Address of the store, without password.
        ended_early: Why a budget ended it before all trials had run; empty where it did not.
    """

    run_id: str
    verdict: str
    severity: str
    valid: int
    failed: int
    invalid: int
    resumed: int
    store: str
    ended_early: str = ""


# ------------------------------------------------------------------ tasks


def retried(*kinds: type[Exception]) -> dict[str, Any]:
    """Options of a task that is tried three times, with growing pauses, when it raises one of these.

    Nothing else is mended by trying again.
    """

    def condition(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
        return isinstance(state.result(raise_on_failure=False), kinds)

    return {
        "retries": 2,
        "retry_delay_seconds": exponential_backoff(backoff_factor=2),
        "retry_jitter_factor": 0.5,
        "retry_condition_fn": condition,
    }


def _provision_name() -> str:
    given = runtime.task_run.parameters
    point: Point = given["point"]
    kind = given["session"].request.sweep.cluster_of(point).kind
    environment = Environment.parse(point.environment)
    return f"provision {kind}" if environment.present else f"provision {kind}, {environment.label}"


@task(
    task_run_name=_provision_name,
    **retried(InfrastructureError),
    cache_policy=NO_CACHE,
    persist_result=False,
)
def provision(session: Session, point: Point) -> Mapping[str, Any]:
    """Start a driver with its cluster."""
    facts = dict(engine.provision(session, point))
    logger, kind = get_run_logger(), session.request.sweep.cluster_of(point).kind
    if script := facts.pop("job_script", ""):
        try:
            publishing.publish_job_script(session.request.sweep, kind, script)
        except (httpx.HTTPError, PrefectException) as error:  # it is in the facts of every trial as well
            logger.warning("The job script could not be published as an artifact: %s", error)
    logger.info("%s cluster: %s", kind, facts)
    return facts


@task(
    task_run_name="environments",
    **retried(InfrastructureError),
    timeout_seconds=BUILD_TIMEOUT_S,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def prepare(request: Request, says: Callable[[str], None]) -> None:
    """Build the environments that the sweep names."""
    engine.prepare(request, says=says)


@task(cache_policy=NO_CACHE, persist_result=False)
def measure(session: Session, planned: PlannedTrial) -> State[Trial]:
    """Run one trial and save it.

    A trial that is not valid is a result too, so the task completes; its state is named after the trial's.
    """
    trial = engine.measure(session, planned)
    return Completed(name=STATE_NAMES[trial.state], message=trial.reason.partition("\n")[0] or None, data=trial)


STATE_NAMES = {TrialState.VALID: "Measured", TrialState.FAILED: "Workload failed", TrialState.INVALID: "Invalid"}


@task(task_run_name="teardown", timeout_seconds=30, cache_policy=NO_CACHE, persist_result=False)
def teardown(session: Session) -> None:
    """End the driver and its cluster."""
    engine.teardown(session)


@task(task_run_name="analyse {run_id}", timeout_seconds=600, cache_policy=NO_CACHE, persist_result=False)
def analyse(store: Store, run_id: str, state: RunState = RunState.COMPLETE) -> Verdict:
    """Judge the run."""
    return engine.analyse(store, run_id, state=state)


@task(
    task_run_name="publish {run.id}",
    **retried(httpx.HTTPError, PrefectException),
    timeout_seconds=120,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def publish(run: SweepRun, verdict: Verdict, report: str = "") -> None:
    """Show the result in Prefect, as artifacts."""
    publishing.publish(run, verdict, report)


@task(task_run_name="report {run.id}", timeout_seconds=600, cache_policy=NO_CACHE, persist_result=False)
def write_report(store: Store, run: SweepRun, path: str) -> None:
    """Write the report of a run."""
    html.write(Path(path), run, store.tables)


# ------------------------------------------------------------------ shares


@dataclass(frozen=True)
class Share:
    """A part of a run that has a cluster of its own; can be sent to another process.

    Attributes:
        sweep: As JSON carries it.
        store: Address of the store.
        records: Address of the raw records.
        run_id: Of the run.
        index: Which share, from 0.
        count: How many there are.
        budget: Of the whole run; none if empty.
    """

    sweep: Mapping[str, Any]
    store: str = field(repr=False)
    records: str
    run_id: str
    index: int
    count: int
    budget: Mapping[str, float] = field(default_factory=dict)


@task(task_run_name="cluster {share.index}", cache_policy=NO_CACHE, persist_result=False)
def run_share(share: Share) -> int:
    """Provision, measure and tear down one share of a run; return how many trials it ran.

    All of it is one task because a driver belongs to the process that started it. The cores are its own.
    """
    request = engine.check(share.sweep, store=share.store, records=share.records, budget=share.budget)
    cores = quiet.cores()[share.index :: share.count]
    if not cores:
        raise ClusterError(
            f"there is no core for cluster {share.index + 1} of {share.count}",
            next_step="ask for fewer parallel clusters",
        )
    with request.open_store() as store:
        done = store.finished(share.run_id)
        trials = [planned for planned in request.plan[share.index :: share.count] if planned.key not in done]
        _run_trials(request, share.run_id, store, trials, cores)
    return len(trials)


def _run_trials(
    request: Request, run_id: str, store: Store, trials: Sequence[PlannedTrial], cores: Sequence[int] = ()
) -> None:
    meter = current_meter.get() or Meter(request, done=0, logger=get_run_logger())

    def measured(session: Session, planned: PlannedTrial) -> Trial:
        arrival_s = request.sweep.cluster_of(planned.point).arrival_limit_s or 0.0
        timeout_s = request.sweep.trial_timeout_s + arrival_s + CLEAR_UP_S
        named = measure.with_options(
            task_run_name=lambda: f"measure {meter.titles[planned.key]}", timeout_seconds=timeout_s
        )
        trial: Trial = named(session, planned).result()
        return trial

    def more() -> list[PlannedTrial]:
        added = engine.grown(request, store, run_id)
        meter.add(added)
        return added

    def provisioned(session: Session, point: Point) -> Mapping[str, Any]:
        limit_s = START_TIMEOUT_S + request.sweep.cluster_of(point).open_limit_s
        facts: Mapping[str, Any] = provision.with_options(timeout_seconds=limit_s)(session, point)
        return facts

    engine.run_trials(
        Session(request, run_id, store, says=meter.says, cores=cores),
        trials,
        steps=engine.Steps(provision=provisioned, measure=measured, teardown=teardown),
        finished=meter.finished,
        more=more,
    )


# ------------------------------------------------------------------ the flow


def _flow_run_name() -> str:
    given = runtime.flow_run.parameters
    cluster = given.get("cluster")
    return f"{given.get('workload')} on {cluster.get('kind') if isinstance(cluster, Mapping) else cluster}"


@local_flow(name="scale-sweep", flow_run_name=_flow_run_name, persist_result=False)
def scale_sweep(
    workload: SkipValidation[str],
    axes: SkipValidation[dict[str, list[Any]]] = {},  # noqa: B006 (never changed; an empty object in the UI's form)
    points: SkipValidation[list[dict[str, Any]]] = [],  # noqa: B006
    params: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    cluster: SkipValidation[str | dict[str, Any]] = "simulated",
    environment: SkipValidation[str] = "",
    repeats: SkipValidation[int] = 1,
    warmups: SkipValidation[int] = 0,
    seed: SkipValidation[int] = 0,
    trial_timeout_s: SkipValidation[float] = 600.0,
    store: SkipValidation[str] = "",
    fresh: SkipValidation[bool] = False,
    parallel_clusters: SkipValidation[int] = 1,
    refine: SkipValidation[int] = 0,
    budget: SkipValidation[dict[str, float]] = {},  # noqa: B006
    report: SkipValidation[str] = "",
) -> SweepResult:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    A sweep that was stopped, even by SIGKILL, continues where it stopped when it is started again with the same
    parameters. The values are checked here and not by Prefect, whose lenience would take `true` for one worker.

    Args:
        workload: What to run: the name of a built-in workload (`scalescope workloads` lists them),
            package.module:function, or path.py:function.
        axes: Values per axis; all combinations are run. Axes are workers, threads_per_worker, items,
            items_per_worker, environment, cluster, any parameter of the workload, or any Dask configuration key.
        points: Further combinations, each a mapping of axis names to values.
        params: Workload parameters that hold for all points.
        cluster: Where to run it: simulated, virtual or local; a saved block such as simulated-cluster/prod; or a
            mapping with kind and fields.
        environment: Software to run it with: requirements such as apache-beam==2.50.0 dask[distributed]==2023.9.1,
            perhaps with a name in front (2023 = ...), or the path of a Python interpreter. Empty: the present one.
        repeats: Trials per point.
        warmups: Trials per point that are run first and never counted.
        seed: Of the randomised order of trials, and of the simulated cluster.
        trial_timeout_s: Real seconds after which a trial is stopped and invalid.
        store: Where results are kept: a path, a database URL, or a saved block such as result-store/team. Empty: the
            environment variable SCALESCOPE_STORE, or else a file in the user's data folder. An address with a password
            belongs in that variable or in a block: Prefect shows what a flow was called with.
        fresh: Begin a new run, even where one can be continued.
        parallel_clusters: Simulated clusters that share the trials and run at the same time, each on cores of its own.
        refine: Points that may be added, between those asked for, until it is known where throughput stops growing.
        budget: What the run may cost: any of core_hours, hours (of measuring), and money, which needs a price table
            (the environment variable SCALESCOPE_PRICES names it). No trial begins that would exceed it; what has
            finished is judged, and the same sweep with a larger budget continues.
        report: Where to write the result as one HTML file, on the machine that runs the flow; nowhere if empty.

    Returns:
        Verdict and counts; everything else is in the store.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be had, or too many were lost.
        StoreError: Results could not be kept.
    """
    request = resolve(
        {
            "workload": workload,
            "axes": axes,
            "points": points,
            "params": params,
            "cluster": cluster,
            "environment": environment,
            "repeats": repeats,
            "warmups": warmups,
            "seed": seed,
            "trial_timeout_s": trial_timeout_s,
        },
        store=store,
        fresh=fresh,
        parallel_clusters=parallel_clusters,
        refine=refine,
        budget=budget,
    )
    if report:
        html.check(Path(report))
    sweep = request.sweep
    labels = [f"sweep:{sweep.id}", f"workload:{sweep.workload}", f"cluster:{sweep.cluster.kind}"]
    with request.open_store() as opened, tags(*labels):
        label_flow_run(labels)
        run, verdict, resumed, ended_early = carry_out(request, opened)
        reported = write_report(opened, run, report, return_state=True) if report else None
        written = report if reported and reported.is_completed() else ""
        published = publish(run, verdict, written, return_state=True)
    if published.is_failed():
        get_run_logger().warning("The result could not be published as artifacts: %s", published.message)
    if reported:
        reported.result()  # raises what went wrong; the result itself is in the store
    states = Counter(trial.state for trial in run.trials if not trial.warmup)
    return SweepResult(
        run_id=run.id,
        verdict=verdict.line,
        severity=verdict.severity.value,
        valid=states[TrialState.VALID],
        failed=states[TrialState.FAILED],
        invalid=states[TrialState.INVALID],
        resumed=resumed,
        store=run.where,
        ended_early=ended_early,
    )


def resolve(sweep: Mapping[str, Any], *, store: object, **asked: object) -> Request:
    """Load the saved blocks that parameters name, and check everything.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    cluster = sweep.get("cluster")
    if names_block(cluster):
        sweep = {**sweep, "cluster": scalescope_blocks.cluster(str(cluster))}
    records = ""
    if names_store(store):
        store, records = scalescope_blocks.store(str(store))
    return engine.check(sweep, store=store, records=records, **asked)


def carry_out(request: Request, store: Store) -> tuple[SweepRun, Verdict, int, str]:
    """Run the trials that a run lacks and those by which it grows, and judge it.

    Returns:
        The run, its verdict, how many of its trials an earlier attempt had finished, and why a budget ended it early,
        if one did.
    """
    says = _says(current_listener.get())
    if any(planned.point.environment for planned in request.plan):
        prepare(request, says)
    run, waiting = engine.begin(request, store)
    plan = engine.whole_plan(request, store.finished(run.id))
    used = request.sweep.clusters(planned.point for planned in request.plan)
    if waiting and (request.budget is not None or not all(cluster.here for cluster in used)):
        says(f"Estimate: {engine.expected_cost(request, waiting, store)}")
    ended_early = ""
    try:
        try:
            _measure_all(request, run, store, plan, waiting)
        except BudgetSpent as error:
            engine.stop(run.id)  # other shares of it
            ended_early = str(error)
            get_run_logger().warning("%s", ended_early)
        verdict = analyse(store, run.id, RunState.STOPPED if ended_early else RunState.COMPLETE)
    except BaseException as error:
        engine.stop(run.id)
        engine.abort(store, run.id, error)
        raise
    return store.run(run.id), verdict, len(plan) - len(waiting), ended_early


def _says(listener: Listener | None) -> Callable[[str], None]:
    """Tells the log and whoever listens what is done before the first trial."""
    logger = get_run_logger()

    def says(text: str) -> None:
        logger.info("%s", text)
        if listener is not None:
            listener(Progress(0, 0, text))

    return says


def _measure_all(
    request: Request, run: SweepRun, store: Store, plan: Sequence[PlannedTrial], waiting: Sequence[PlannedTrial]
) -> None:
    """Run the trials that a run still lacks, and those by which it grows."""
    logger = get_run_logger()
    done, total = len(plan) - len(waiting), len(plan)
    logger.info("Run %s: %d trials, %d of them finished before; results in %s", run.id, total, done, run.where)
    if not waiting:
        return
    artifact = create_progress_artifact(100 * done / total, description=f"Trials of run {run.id}")
    assert isinstance(artifact, UUID)  # not a coroutine, since this is not one
    added = plan[len(request.plan) :]
    meter = Meter(request, done=done, added=added, logger=logger, artifact=artifact, listener=current_listener.get())
    token = current_meter.set(meter)
    try:
        if request.parallel_clusters == 1:
            _run_trials(request, run.id, store, waiting)
            return
        count = request.parallel_clusters
        sweep, budget = request.sweep.to_mapping(), request.budget.limits if request.budget else {}
        futures = [
            run_share.submit(Share(sweep, request.store, request.records, run.id, index, count, budget))
            for index in range(count)
        ]
        for future in futures:
            future.result()
        if request.grow is not None:
            _run_trials(request, run.id, store, ())
    finally:
        current_meter.reset(token)


def label_flow_run(labels: Sequence[str]) -> None:
    """Add tags to the flow run that is running."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(runtime.flow_run.id), tags={*runtime.flow_run.tags, *labels})
