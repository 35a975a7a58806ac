"""A whole run of a sweep: environments, clusters, trials, verdict, report."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope import environments
from scalescope.analysis.cost import estimate
from scalescope.clusters import reaping
from scalescope.diagnosis import causes
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import BudgetSpent, ClusterError, InfrastructureError, StoreError
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.model.emulation_limit import BEYOND
from scalescope.model.environment import Environment
from scalescope.model.finding import Severity, Verdict
from scalescope.model.run_facts import CODE, INSTEAD_OF
from scalescope.model.sweep import DEFAULT_CLUSTER, PlannedTrial
from scalescope.model.trial import TrialState
from scalescope.model.words import plural
from scalescope.report import export, html, links
from scalescope.report.notebook import Shown
from scalescope.run import orchestrator_load, price_table, run_names, signals, telemetry
from scalescope.run.drivers import Drivers, may_start, stop
from scalescope.run.functions import named
from scalescope.run.growth import SweepGrowth
from scalescope.run.job_time import tasks_longer_than_jobs
from scalescope.run.output_paths import OutputPath, WrittenFile
from scalescope.run.progress import Meter, Progress, current_meter
from scalescope.run.progress_bar import shown
from scalescope.run.request import RunRequest, resolve
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.trials import run_trials
from scalescope.store.patience import ENDING_S
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from scalescope.waiting import PATIENCE_S

EARLIER_RUNS = 10  # most runs of the same sweep whose durations an estimate uses
# Time limits in seconds: to build all environments of a sweep; to judge a run, or to write its report
BUILD_TIMEOUT_S, JUDGE_TIMEOUT_S = 3600.0, 600.0 + PATIENCE_S

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepResult(Shown):
    """Result of a sweep; a notebook shows the verdict, the worker time and the table of points."""

    run_id: str  # id in the store; `scalescope show RUN_ID` shows the run
    verdict: str  # the verdict in one line
    severity: str  # severity of the worst finding: `high`, `medium`, `low` or `info`
    finding: str  # the worst finding in three to six words
    valid: int  # trials that are data points
    failed: int  # trials whose workload raised
    invalid: int  # trials in which the machine misbehaved
    resumed: int  # trials that an earlier attempt had finished
    store: str  # address of the store, without password
    ended_early: str = ""  # the reason if a budget ended it before all trials had run; else empty
    run: SweepRun = field(kw_only=True, repr=False, compare=False)  # the whole run, as in the store

    def _shown(self) -> SweepRun:
        return self.run

    @property
    def outcome(self) -> tuple[str, str]:
        """Name of the flow's final state, empty if no finding has high severity; and the verdict."""
        assert self.run.verdict is not None
        text = self.run.verdict.text
        line = f"{text} Ended early: {self.ended_early}" if self.ended_early else text
        return (f"Finding: {self.finding}" if self.severity == Severity.HIGH else ""), line


def run_sweep(given: Mapping[str, Any] | RunRequest, runner: Runner | None = None) -> SweepResult:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    A stopped sweep (even by SIGKILL) continues when it is run again with the same parameters.

    Args:
        given: Parameters of a run (`RunParameters`) by name (the workload can be a function), or a request.
        runner: Carries out the steps; by default this process, with a bar on a terminal and in a notebook.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be opened, or too many were lost.
        StoreError: Results could not be kept.
    """
    request = given if isinstance(given, RunRequest) else resolve(named(given))
    sweep = request.sweep
    with shown(runner) as runner, request.open_store() as store:
        runner.label([f"sweep:{sweep.id}", f"workload:{sweep.workload}", f"cluster:{sweep.cluster.kind}"])
        place = OutputPath.of_report(request.report, store, runner)
        done = carry_out(request, store, runner)
        if instead := _simulated(request, done.run):
            beyond = f"This host is too slow for the {sweep.cluster.kind} cluster: running on the simulated cluster"
            runner.tell(Progress(0, 0, beyond, notable=True))
            done = carry_out(instead, store, runner)
        run, written = done.run, None
        try:
            if place:
                written = place.write(run.id, runner, lambda address: runner.do(REPORT, store, run, address))
        finally:
            runner.publish(lambda: publication(run, done.verdict, written))
    states = Counter(trial.state for trial in run.trials if not trial.warmup)
    code = done.verdict.findings[0].code
    title = causes.by_code()[code].title if code in causes.by_code() else code
    return SweepResult(
        run_id=run.id,
        verdict=done.verdict.line,
        severity=done.verdict.severity.value,
        finding=title[:1].lower() + title[1:],
        valid=states[TrialState.VALID],
        failed=states[TrialState.FAILED],
        invalid=states[TrialState.INVALID],
        resumed=done.resumed,
        store=run.where,
        ended_early=done.ended_early,
        run=run,
    )


def _simulated(request: RunRequest, run: SweepRun) -> RunRequest | None:
    """The request on the simulated cluster, if this host cannot emulate some of its points; else None."""
    counted = {trial.point.id for trial in run.trials if trial.counts}
    beyond = {trial.point.id for trial in run.trials if not trial.warmup and trial.reason.startswith(BEYOND)}
    kinds, clusters = request.workload.kinds, request.sweep.clusters(planned.point for planned in request.plan)
    if not beyond - counted or len(clusters) > 1 or (kinds and DEFAULT_CLUSTER not in kinds):
        return None
    sweep = replace(request.sweep, cluster=cluster_spec({"kind": DEFAULT_CLUSTER}))
    grow = replace(request.grow, sweep=sweep) if isinstance(request.grow, SweepGrowth) else None
    return replace(request, sweep=sweep, plan=sweep.plan(request.workload), grow=grow)


def prepare(request: RunRequest, says: Callable[[str], None]) -> None:
    for text in dict.fromkeys(planned.point.environment for planned in request.plan):
        environments.ensure(Environment.parse(text), says=says)


@dataclass(frozen=True)
class Share:
    """A part of a run with a cluster of its own; can be sent to another process."""

    request: RunRequest = field(repr=False)
    run_id: str
    index: int  # number of the share, from 0
    count: int  # number of shares


def run_share(share: Share, runner: Runner) -> int:
    """Measure one share of a run on its own cores, as a single step, since drivers belong to a process."""
    request = share.request
    cores = orchestrator_load.cores()[share.index :: share.count]
    if not cores:
        raise ClusterError(
            f"this host has too few cores: none is left for cluster {share.index + 1} of {share.count}",
            next_step="ask for fewer parallel clusters",
        )
    with request.open_store() as store:
        store.patience_s = PATIENCE_S
        done = store.finished(share.run_id)
        trials = [planned for planned in request.plan[share.index :: share.count] if planned.key not in done]
        _run(request, share.run_id, store, trials, runner, cores)
    return len(trials)


def write_report(store: Store, run: SweepRun, path: str) -> None:
    html.write(path, run, store.tables)


def begin(
    request: RunRequest, store: Store, *, facts: Mapping[str, Any] | None = None
) -> tuple[SweepRun, list[PlannedTrial]]:
    """Begin a run, or continue one that was stopped; return the run and the trials that are still missing."""
    from scalescope.capture.host import packages

    run = store.begin(
        request.sweep,
        request.plan,
        workload_version=request.workload.version,
        fresh=request.fresh,
        facts={**(facts or {}), **({CODE: code} if (code := request.workload.code) else {}), "packages": packages()},
        study=request.study,
    )
    may_start(run.id)
    done = run.done
    plan = request.whole_plan(done)
    if len(plan) > len(request.plan):
        store.extend(run.id, len(plan))
    return run, [planned for planned in plan if planned.key not in done]


def analyse(store: Store, run_id: str, state: RunState = RunState.COMPLETE) -> Verdict:
    """Judge a run by its finished trials, and record the verdict; `STOPPED` means that a budget ended the run."""
    run = store.run(run_id)
    verdict = diagnose(run.sweep, run.trials)
    store.finish(run_id, state, verdict)
    return verdict


PREPARE = RunStep("environments", prepare, retried=(InfrastructureError,), timeout_s=lambda *_: BUILD_TIMEOUT_S)
SHARE = RunStep("cluster", run_share, lambda share, runner: f"cluster {share.index}")
ANALYSE = RunStep(
    "analyse", analyse, lambda store, run_id, state: f"analyse {run_id}", timeout_s=lambda *_: JUDGE_TIMEOUT_S
)
REPORT = RunStep(
    "report", write_report, lambda store, run, path: f"report {run.id}", timeout_s=lambda *_: JUDGE_TIMEOUT_S
)


def expected_cost(request: RunRequest, trials: Sequence[PlannedTrial], store: Store) -> str:
    """Say what trials will cost, by the durations in earlier runs of the same sweep."""
    done = [trial for run in store.runs(sweep=request.sweep.id, limit=EARLIER_RUNS) for trial in run.trials]
    table = price_table.load()
    return estimate(request.sweep, trials, table, done).sentence(request.sweep, table)


def abort(store: Store, run_id: str, error: BaseException) -> None:
    """Record that a run was stopped, or failed with `error`; it can be continued."""
    with signals.shielded():
        try:
            store.patience_s = ENDING_S
            broken = isinstance(error, Exception) and not isinstance(error, BudgetSpent) and not signals.have_come()
            store.finish(run_id, RunState.FAILED if broken else RunState.STOPPED, reason=str(error) if broken else "")
        except StoreError as refused:  # the error that ended the run is more important
            logger.warning("run %s could not be marked as ended: %s", run_id, refused)


@dataclass(frozen=True)
class CarriedOut:
    """A run that has been carried out."""

    run: SweepRun
    verdict: Verdict
    resumed: int  # trials that an earlier attempt had finished
    ended_early: str = ""  # the reason if a budget ended it early; else empty


def carry_out(request: RunRequest, store: Store, runner: Runner) -> CarriedOut:
    def says(text: str) -> None:
        runner.tell(Progress(0, 0, text))

    def waits(text: str) -> None:
        runner.tell(Progress(0, 0, text, notable=text not in told))
        told.add(text)  # each wait is reported many times, but logged once

    told: set[str] = set()
    store.says = waits
    if any(planned.point.environment for planned in request.plan):
        runner.do(PREPARE, request, says)
    points = [planned.point for planned in request.plan]
    clusters = request.sweep.clusters(points)
    for each in reaping.reap_here({cluster.kind for cluster in clusters}):
        waits(f"{each.label}, which an earlier run left on {each.backend}: {each.fate} ({each.words})")
    for cluster in clusters:
        own = [each for each in points if request.sweep.cluster_of(each) == cluster]
        if words := of_site(cluster):
            runner.tell(Progress(0, 0, words, notable=True))
        if text := tasks_longer_than_jobs(request.sweep, cluster, own, store):
            runner.tell(Progress(0, 0, text, notable=True))
        cluster.check_room([(each.workers, each.threads_per_worker) for each in own], waits)
    run, waiting = begin(request, store)
    plan = request.whole_plan(run.done)
    if waiting and (request.budget is not None or not all(cluster.here for cluster in clusters)):
        runner.tell(Progress(0, 0, f"Estimate: {expected_cost(request, waiting, store)}", notable=True))
    ended_early = ""
    try:
        try:
            _measure_all(request, run, store, plan, waiting, runner)
        except BudgetSpent as error:
            stop(run.id)  # the other shares end, too
            ended_early = str(error)
            logger.warning("%s", ended_early)
        verdict = runner.do(ANALYSE, store, run.id, RunState.STOPPED if ended_early else RunState.COMPLETE)
    except BaseException as error:
        stop(run.id)
        abort(store, run.id, error)
        raise
    done = store.run(run.id)
    if telemetry.is_on():  # if a budget ended an earlier attempt, its trials were sent then
        telemetry.send(telemetry.of_run(done, told=run.done if run.verdict else ()))
    return CarriedOut(done, verdict, len(plan) - len(waiting), ended_early)


def of_site(cluster: ClusterSpec) -> str:
    """Changes to a cluster by Dask's configuration on this machine, in a sentence; empty if none."""
    own, left_out = cluster.of_site(), cluster.site_config().left_out
    values = ", ".join(f"{name} to {getattr(cluster, name)}" for name in own)
    parts = [f"sets {values} (from {', '.join(dict.fromkeys(own.values()))})"] if own else []
    parts += [f"has ignored keys: {', '.join(left_out)} (`scalescope job-script` says why)"] if left_out else []
    return f"Dask's configuration on this machine {', and '.join(parts)}" if parts else ""


def _measure_all(
    request: RunRequest,
    run: SweepRun,
    store: Store,
    plan: Sequence[PlannedTrial],
    waiting: Sequence[PlannedTrial],
    runner: Runner,
) -> None:
    done = len(plan) - len(waiting)
    if (before := run.facts.get(INSTEAD_OF)) and not done:
        anew = "; --fresh starts the study again, so that all its runs use the same code" if request.study else ""
        changed = f"{request.sweep.workload}, or a file that it imports, has changed"
        text = f"Run {before} is not continued: {changed}{anew}"
        runner.tell(Progress(0, len(plan), text, notable=True))
    text = f"Run {run.id}: {plural(len(plan), 'trial')}, {done} finished before; results in {run.where}"
    runner.tell(Progress(done, len(plan), text, notable=True))
    if not waiting:
        return
    token = current_meter.set(Meter(request.sweep, plan, done=done, tell=runner.tell))
    try:
        if request.parallel_clusters == 1:
            _run(request, run.id, store, waiting, runner)
            return
        count = request.parallel_clusters
        ungrown = replace(request, grow=None)  # further trials are chosen when all shares have ended
        shares = [(Share(ungrown, run.id, index, count), runner) for index in range(count)]
        runner.together(SHARE, shares, stop=lambda: stop(run.id))
        if request.grow is not None:
            _run(request, run.id, store, (), runner)
    finally:
        current_meter.reset(token)


def _run(
    request: RunRequest,
    run_id: str,
    store: Store,
    trials: Sequence[PlannedTrial],
    runner: Runner,
    cores: Sequence[int] = (),
) -> None:
    meter = current_meter.get() or Meter(request.sweep, request.plan, done=0, tell=runner.tell)

    def more() -> list[PlannedTrial]:
        added = request.grown(store, run_id)
        meter.add(added)
        return added

    drivers = Drivers(request, run_id, store, says=meter.says, cores=cores)
    run_trials(drivers, trials, runner=runner, finished=meter.finished, more=more)


def publication(run: SweepRun, verdict: Verdict, report: WrittenFile | None = None) -> Publication:
    """The page of a run; the page of a later run of the same sweep is its newer version."""
    text = export.to_markdown(run.sweep, run.trials, verdict) + where_report(report, run.id)
    if part := links.markdown(links.of_run(run)):
        text += f"\n{part}\n"
    rows = export.to_rows(run.sweep, run.trials, verdict)
    return Publication(run_names.brief_sweep(run.sweep.to_mapping()), run.sweep.id, verdict.text, text, rows)


def where_report(report: WrittenFile | None, reference: str) -> str:
    """Markdown with the report's address, and the command that writes it again; empty without a report."""
    if report is None:
        return ""
    again = f"`scalescope report {reference}` writes it again on any machine with the store."
    return f"\n**Report** with charts and evidence: {report.markdown()}. {again}\n"
