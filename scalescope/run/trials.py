"""Trials one after the other: each measured, judged and saved before the next begins."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.events import Tables, told
from scalescope.analysis.measure import measure as metrics_of
from scalescope.diagnosis import blame, causes
from scalescope.diagnosis.causes.no_known_cause import is_trifle
from scalescope.diagnosis.observation import Observation
from scalescope.driver.process import Driver, TrialOutcome
from scalescope.errors import BudgetSpent, CaptureError, DriverError, EnvironmentFailed, InfrastructureError, StoreError
from scalescope.model import spool
from scalescope.model.emulation_limit import EmulationLimit
from scalescope.model.environment import Environment
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import CUT_OFF, SILENT, STOOD_STILL, Trial, TrialState
from scalescope.model.words import cut, plural
from scalescope.run import orchestrator_load, run_names
from scalescope.run.drivers import Drivers, registered
from scalescope.run.progress import current_meter
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.signals import shielded
from scalescope.store.store import HEARTBEAT_LIMIT_S, Store
from scalescope.waiting import PATIENCE_S

MAX_LOSSES = 3  # drivers that die in a row, without a good trial in between, after which the run ends
TEARDOWN_S = 15.0  # seconds for a driver to end by itself after the last trial, with time to clear up
# Seconds beyond the driver's own limits, so that the driver's errors come first: for its start, perhaps with a new
# environment; and for a trial, to scale the cluster and to read the records
START_TIMEOUT_S, CLEAR_UP_S = 900.0, 420.0
STATE_NAMES = {TrialState.VALID: "Measured", TrialState.FAILED: "Workload failed", TrialState.INVALID: "Invalid"}
WALLTIME_REACHED = "walltime_reached"  # fact of a cluster: the time limit of its jobs ended the trial
UNAVAILABLE = "environment_unavailable"  # fact: the trial's environment could not be built

logger = logging.getLogger(__name__)


def provision(drivers: Drivers, point: Point) -> Mapping[str, Any]:
    return drivers.open(point).facts


def _provision_title(drivers: Drivers, point: Point) -> str:
    kind, environment = drivers.request.sweep.cluster_of(point).kind, Environment.parse(point.environment)
    return f"provision {kind}" if environment.present else f"provision {kind}, {environment.label}"


def _provision_limit_s(drivers: Drivers, point: Point) -> float:
    return START_TIMEOUT_S + drivers.request.sweep.cluster_of(point).open_limit_s


def measure(drivers: Drivers, planned: PlannedTrial) -> Trial:
    """Run one trial, compute its metrics and save it durably.

    The trial is repeated once, within the budget, if its jobs reached their time limit, a process or the control plane
    stood still, or the driver lost the scheduler: none of these depends on the value that is measured.
    """
    driver = drivers.driver(planned.point)
    if driver is None:
        raise DriverError("there is no driver to run the trial", next_step="provision one")
    drivers.use(planned.point)
    trial, outcome = _attempt(drivers, driver, planned)
    reached = trial.facts["cluster"].get(WALLTIME_REACHED) and "the time limit of its jobs was reached"
    why = reached or trial.facts["cluster"].get(SILENT) or trial.facts.get(STOOD_STILL) or trial.facts.get(CUT_OFF)
    if why and driver.alive and not _refusal(drivers, planned, trial):
        if meter := current_meter.get():
            meter.says(f"{why}; the trial is repeated")
        shutil.rmtree(outcome.spool, ignore_errors=True)
        first, (trial, outcome) = trial, _attempt(drivers, driver, planned)
        trial = _charged(trial, first)
        trial = replace(trial, warnings=(*trial.warnings, f"this is the second attempt; in the first, {why}"))
    trial, tables = judged(trial, outcome.spool, outcome.elapsed_s)
    saved = drivers.store.save(drivers.run_id, trial, tables)
    shutil.rmtree(outcome.spool, ignore_errors=True)  # the rest is removed with the driver's folder
    return saved


def _attempt(drivers: Drivers, driver: Driver, planned: PlannedTrial) -> tuple[Trial, TrialOutcome]:
    sweep = drivers.request.sweep
    real_time = sweep.cluster_of(planned.point).real_time
    with orchestrator_load.quiet(drivers.pids, enabled=real_time) as load:
        outcome = driver.run(planned, sweep.workload, timeout_s=sweep.trial_timeout_s)
    if drivers.stopped:
        raise DriverError("the sweep was stopped")
    facts = {
        **outcome.facts,
        "cluster": {**driver.facts, **outcome.facts.get("cluster", {})},
        "packages": driver.packages,
        "host": {**driver.host, **outcome.facts.get("host", {})},
    }
    if price := drivers.prices.of(sweep.cluster_of(planned.point), facts["cluster"].get("pods", ())):
        facts["price"] = {"worker_hour": price, "currency": drivers.prices.currency}
    if real_time:
        facts["orchestrator"] = {"waited_s": load.waited_s, "cpu_s": load.cpu_s}
    if outcome.error is not None:
        facts["error"] = dict(outcome.error)
    if outcome.result is not None:
        facts["result"] = outcome.result
    trial = Trial(
        *(planned.key, planned.point, planned.repeat, planned.warmup, outcome.state, outcome.reason),
        started_at=outcome.started_at,
        real_s=outcome.real_s,
        facts=facts,
        warnings=outcome.warnings,
    )
    return trial, outcome


def _charged(trial: Trial, first: Trial) -> Trial:
    unknown = {"waited_for_workers_s": 0.0, "held_worker_s": 0.0}
    cluster, before = ({**unknown, **each.facts["cluster"]} for each in (trial, first))
    worked_s = first.point.workers * (first.real_s - before["waited_for_workers_s"])
    cluster |= {"held_worker_s": cluster["held_worker_s"] + before["held_worker_s"] + worked_s, "repeated": True}
    return replace(trial, facts={**trial.facts, "cluster": cluster})


def judged(trial: Trial, spool_folder: Path, elapsed_s: float | None) -> tuple[Trial, dict[str, Any]]:
    """The trial with metrics and findings, and its records; a valid trial with unreadable records becomes invalid."""
    tables: dict[str, Any] = {}
    attempts = None
    try:
        tables = read_records(spool_folder)
        attempts = Attempts.read(tables)
    except CaptureError as error:
        trial = _spoilt(trial, str(error))
    if attempts is not None and elapsed_s is not None:
        trial = _measured(trial, tables, attempts, elapsed_s)
    if trial.state is TrialState.FAILED:
        trial = _named(trial, tables)
    seen = Observation(trial, tables, attempts)
    return replace(trial, findings=causes.find(seen), facts={**trial.facts, **blame.kept(seen)}), tables


def _measured(trial: Trial, tables: Tables, attempts: Attempts, elapsed_s: float) -> Trial:
    metrics = metrics_of(tables, threads=trial.point.threads, elapsed_s=elapsed_s, attempts=attempts)
    trial = replace(trial, metrics=metrics)
    limit = trial.facts["cluster"].get("limit")
    if limit and not is_trifle(metrics):  # so short a trial gets no findings anyway
        trial = _spoilt(trial, EmulationLimit.from_mapping(limit).beyond(metrics.tasks, metrics.makespan_s))
    return trial


def _named(trial: Trial, tables: Tables) -> Trial:
    """The failed trial, with the task that raised, its arguments and the line of the user's code in its reason."""
    from dask.utils import key_split  # Dask takes 0.15 s to import, which only a failure needs

    error = trial.facts.get("error") or {}
    subject, raised, said = trial.reason.partition(" raised ")
    if not raised or "repr" not in error:
        return trial
    where = error["where"]
    for _, task in told(tables.get("events", {}), "task-erred"):
        if task["exception"][:200] == error["repr"][:200]:
            subject = f"`{task['call'] or key_split(task['key'])}`"
            where = where.partition(" in ")[0] if task["call"] else where
            break
    first, *more = said.split("\n")
    at = f" ({where})" if where else ""
    return replace(trial, reason="\n".join([f"{subject} raised {cut(first, 140)}{at}", *more]))


def _spoilt(trial: Trial, reason: str) -> Trial:
    if not reason or trial.state is not TrialState.VALID:
        return trial
    return replace(trial, state=TrialState.INVALID, reason=reason)


def tear_down(drivers: Drivers) -> None:
    drivers.close(TEARDOWN_S)


def _measure_title(drivers: Drivers, planned: PlannedTrial) -> str:
    meter = current_meter.get()
    return f"measure {meter.titles[planned.key] if meter else planned.key}"


def _measure_limit_s(drivers: Drivers, planned: PlannedTrial) -> float:
    sweep = drivers.request.sweep
    arrival_s = sweep.cluster_of(planned.point).arrival_limit_s or 0.0
    return 2 * (sweep.trial_timeout_s + arrival_s + CLEAR_UP_S) + PATIENCE_S


PROVISION = RunStep("provision", provision, _provision_title, (InfrastructureError,), _provision_limit_s)
MEASURE = RunStep(
    "measure",
    measure,
    _measure_title,
    timeout_s=_measure_limit_s,
    # a trial that is not valid is also a result
    outcome=lambda trial: (STATE_NAMES[trial.state], trial.reason.partition("\n")[0]),
)
TEARDOWN = RunStep("teardown", tear_down, timeout_s=lambda drivers: 30.0)


def run_trials(
    drivers: Drivers,
    trials: Sequence[PlannedTrial],
    *,
    runner: Runner | None = None,
    finished: Callable[[Trial], None] = lambda trial: None,  # called with each saved trial
    more: Callable[[], Sequence[PlannedTrial]] = tuple,  # called for further trials until it returns no new ones
    hold: bool = False,  # True if clusters stay open after success; the caller then closes the drivers
) -> None:
    """Run trials one after the other; the clusters are closed even after an error.

    A driver that dies is replaced, and the trial in which it died is invalid.
    """
    runner = runner or Runner()
    losses, waiting, known = 0, list(reversed(trials)), {planned.key for planned in trials}
    try:
        with registered(drivers), beating(drivers.store, drivers.run_id):
            while waiting or (waiting := [planned for planned in reversed(more()) if planned.key not in known]):
                known.update(planned.key for planned in waiting)
                _afford(drivers, waiting[-1])
                try:
                    trial = _run_one(drivers, waiting[-1], runner)
                except DriverError:  # the driver ended before the trial began
                    if drivers.stopped or losses + 1 >= MAX_LOSSES:
                        raise
                    losses += 1
                    continue
                point = waiting.pop().point
                if budget := drivers.request.budget:
                    drivers.spending.add(drivers.request.sweep, trial, budget.prices)
                finished(trial)
                losses = 0 if drivers.driver(point) or trial.facts.get(UNAVAILABLE) else losses + 1
                if losses >= MAX_LOSSES:
                    raise DriverError(
                        f"{losses} drivers (processes that run trials) died one after the other",
                        where=f"{drivers.request.sweep.cluster_of(point).kind} cluster, run {drivers.run_id}",
                        cause=trial.reason,
                        next_step="run the same command again: it goes on with the next trial",
                    )
                drivers.leave(point)
    except BaseException:
        with shielded():
            drivers.close()  # not as a step: closing must not wait for Prefect's server
        raise
    if hold:
        return
    with shielded():
        try:
            runner.do(TEARDOWN, drivers)
        finally:
            drivers.close()


def _afford(drivers: Drivers, planned: PlannedTrial) -> None:
    if reason := _refusal(drivers, planned):
        raise BudgetSpent(
            f"the budget ends the sweep: {reason}",
            where=f"run {drivers.run_id}, {plural(len(drivers.spending.keys), 'trial')} finished",
            next_step="`scalescope show` shows the finished trials; the same command with a larger budget continues",
        )


def _refusal(drivers: Drivers, planned: PlannedTrial, *more: Trial) -> str:
    """The reason why a trial would exceed the budget after all saved trials and `more`; empty if it fits."""
    budget = drivers.request.budget
    if budget is None:
        return ""
    sweep, spending = drivers.request.sweep, drivers.spending
    for trial in drivers.store.finished(drivers.run_id, besides=spending.keys).values():  # trials of all shares
        spending.add(sweep, trial, budget.prices)
    if more:
        spending = deepcopy(spending)
        for trial in more:
            spending.add(sweep, trial, budget.prices)
    return budget.stops(sweep, spending, planned)


def _run_one(drivers: Drivers, planned: PlannedTrial, runner: Runner) -> Trial:
    """Run a trial, on a new driver if needed; it is invalid if its environment cannot be built."""
    if drivers.driver(planned.point) is None:
        try:
            _publish_script(drivers, planned.point, runner.do(PROVISION, drivers, planned.point), runner)
        except EnvironmentFailed as error:
            which = (planned.key, planned.point, planned.repeat, planned.warmup)
            trial = Trial(*which, TrialState.INVALID, str(error), facts={UNAVAILABLE: True})
            return drivers.store.save(drivers.run_id, trial)
    return runner.do(MEASURE, drivers, planned)


def _publish_script(drivers: Drivers, point: Point, facts: Mapping[str, Any], runner: Runner) -> None:
    sweep, is_manifest = drivers.request.sweep, "manifest" in facts
    what, language = ("manifest", "yaml") if is_manifest else ("job script", "bash")
    script = str(facts.get("manifest" if is_manifest else "job_script", ""))
    if not script:
        return
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", script)), default=0))
    kind = sweep.cluster_of(point).kind
    line = f"The {what} of the workers on the {kind} cluster, as it was before the first was submitted"
    text = f"{fence}{language}\n{script}\n{fence}\n"
    runner.publish(lambda: Publication(f"{what} of {run_names.workload(sweep.workload)}", sweep.id, line, text))


def read_records(spool_folder: Path) -> dict[str, Any]:
    """The raw records that a trial left, without incomplete last chunks."""
    tables: dict[str, Any] = {}
    for path in sorted(spool_folder.glob("*.spool")):
        tables.update(spool.read(path, partial=True))
    return tables


@contextmanager
def beating(store: Store, run_id: str) -> Iterator[None]:
    """Tell the store regularly, from a thread, that the run is alive: trials can be long."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_LIMIT_S / 4):
            try:
                store.beat(run_id)
            except StoreError as error:  # if the error lasts, the next trial cannot be saved, which ends the run
                logger.warning("%s", error)

    threading.Thread(target=beat, name="scalescope-heartbeat", daemon=True).start()
    try:
        yield
    finally:
        over.set()
