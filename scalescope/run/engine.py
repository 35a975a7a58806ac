"""How a sweep is carried out, without a word of Prefect: check, begin, run the trials, judge.

The flow in `scalescope_flows.sweep` hands its tasks in as `Steps`; with the plain functions of this module the same
sweep runs without any orchestrator, which is how it is tested.
"""

from __future__ import annotations

import logging
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalescope import environments, workloads
from scalescope.analysis.attempts import Attempts, Tables
from scalescope.analysis.cost import Budget, estimate
from scalescope.analysis.knee import further
from scalescope.analysis.measure import measure as metrics_of
from scalescope.analysis.summary import label, varied
from scalescope.diagnosis import causes
from scalescope.diagnosis.observation import Observation
from scalescope.diagnosis.verdict import diagnose
from scalescope.driver.process import Driver
from scalescope.errors import BudgetSpent, CaptureError, DriverError, EnvironmentFailed, InvalidField, StoreError
from scalescope.model import fields, spool
from scalescope.model.environment import Environment
from scalescope.model.finding import Verdict
from scalescope.model.limit import EmulationLimit
from scalescope.model.sweep import PlannedTrial, Point, Sweep, digest
from scalescope.model.trial import Trial, TrialState
from scalescope.model.workload import Workload
from scalescope.run import prices, quiet
from scalescope.store.location import locate
from scalescope.store.schema import RunState
from scalescope.store.store import HEARTBEAT_LIMIT_S, Store, SweepRun

MAX_LOSSES = 3
"""Drivers that may die one after the other, without a trial that ended well in between, before the sweep gives up."""

EARLIER_RUNS = 10
"""Most runs of the same sweep from which an estimate takes how long its trials take."""

MAX_REFINED = 1000
"""Most points that a sweep may be refined by."""

logger = logging.getLogger(__name__)


# ------------------------------------------------------------------ what is asked


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


def check(
    sweep: Mapping[str, object],
    *,
    store: object = "",
    records: str = "",
    fresh: object = False,
    parallel_clusters: object = 1,
    refine: object = 0,
    budget: object = None,
) -> Request:
    """Check a sweep completely; nothing is started and nothing is written.

    Args:
        sweep: As `Sweep.from_mapping` reads it.
        store: Address of the store.
        records: Address of the raw records.
        fresh: Whether to begin a new run.
        parallel_clusters: Clusters at the same time.
        refine: Points that may be added.
        budget: What it may cost: a mapping with `core_hours`, `money` or `hours`.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    asked = Sweep.from_mapping(sweep)
    workload = workloads.load(asked.workload)
    plan = asked.plan(workload)
    if not isinstance(store, str):
        raise InvalidField("store", store, "text: a path, a database URL or result-store/NAME")
    locate(store)
    shares = fields.integer("parallel_clusters", parallel_clusters, minimum=1)
    _check_parallel(asked, plan, shares)
    points = fields.integer("refine", refine, minimum=0, maximum=MAX_REFINED)
    return Request(
        asked,
        workload,
        plan,
        store,
        records,
        fields.boolean("fresh", fresh),
        min(shares, len(plan)),
        refining(asked, plan, points) if points else None,
        budget=_budget(budget, asked, plan),
    )


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


def titles(request: Request, added: Sequence[PlannedTrial] = ()) -> dict[str, str]:
    """Every trial of a plan, and those added to it, in a few words (`200 workers, 199 items · 2/3`), by key."""
    plan = (*request.plan, *added)
    names = varied(planned.point for planned in plan)
    return {planned.key: f"{label(planned.point, names)} · {_turn(request, planned)}" for planned in plan}


def _turn(request: Request, planned: PlannedTrial) -> str:
    if planned.warmup:
        return f"warm-up {planned.repeat + 1}/{request.sweep.warmups}"
    repeats = request.sweep.repeats
    return f"{planned.repeat + 1}/{repeats}" if planned.repeat < repeats else f"repeat {planned.repeat + 1}"


# ------------------------------------------------------------------ one share of a run


MAX_DRIVERS = 4
"""Drivers of one session that are kept open, each with its cluster: a sweep over two environments changes between them
with every trial."""


@dataclass(frozen=True)
class _Opened:
    """A driver, and the folder where it leaves its records."""

    driver: Driver
    folder: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        try:
            self.driver.close(timeout_s=CLOSE_TIMEOUT_S)
        finally:
            self.folder.cleanup()


class Session:
    """Drivers with their clusters, one for each cluster and environment, and the store where trials are saved.

    Args:
        request: The sweep.
        run_id: Run of the sweep in the store.
        store: The caller closes it.
        says: Told in a sentence whenever a driver begins something.
        cores: To which drivers are pinned; none means that they are not.
    """

    def __init__(
        self,
        request: Request,
        run_id: str,
        store: Store,
        *,
        says: Callable[[str], None] = lambda text: None,
        cores: Sequence[int] = (),
    ) -> None:
        self.request = request
        self.run_id = run_id
        self.store = store
        self.stopped = False
        self._says = says
        self._cores = list(cores)
        self._opened: dict[tuple[str, str], _Opened] = {}  # the last used last

    @property
    def pids(self) -> list[int]:
        """Processes of all drivers."""
        return [opened.driver.pid for opened in self._opened.values()]

    def driver(self, point: Point) -> Driver | None:
        """The driver that can run a point now."""
        opened = self._opened.get(self._place(point))
        return opened.driver if opened is not None and opened.driver.alive else None

    def open(self, point: Point) -> Driver:
        """Start a driver and its cluster, for a point and those like it; the one that was not used for longest may go.

        Raises:
            InfrastructureError: They could not be had.
            UsageError: There can be no such environment.
        """
        place = self._place(point)
        self._close(place)
        while len(self._opened) >= MAX_DRIVERS:
            self._close(next(iter(self._opened)))
        if self.stopped:
            raise DriverError("the sweep was stopped")
        sweep = self.request.sweep
        python = environments.ensure(Environment.parse(point.environment), says=self._says).python
        folder = tempfile.TemporaryDirectory(prefix="scalescope-", ignore_cleanup_errors=True)
        try:
            with quiet.pinned(self._cores):
                driver = Driver.start(
                    sweep.cluster_of(point),
                    seed=sweep.seed,
                    folder=Path(folder.name),
                    python=str(python),
                    on_progress=self._says,
                )
        except BaseException:
            folder.cleanup()
            raise
        self._opened[place] = _Opened(driver, folder)
        return driver

    def use(self, point: Point) -> None:
        """Remember that the driver of a point was used last."""
        place = self._place(point)
        self._opened[place] = self._opened.pop(place)

    def close(self) -> None:
        """End all drivers with their clusters; may be called again."""
        with ExitStack() as stack:
            for place in list(self._opened):
                stack.callback(self._close, place)

    def stop(self) -> None:
        """End the drivers, from any thread, for good: the trial that this interrupts is not recorded.

        The folders are left to the thread that runs the trials, which may be reading them.
        """
        self.stopped = True
        for opened in list(self._opened.values()):
            opened.driver.close(timeout_s=CLOSE_TIMEOUT_S)

    def _place(self, point: Point) -> tuple[str, str]:
        """What a driver is for: cluster and environment."""
        return digest(self.request.sweep.cluster_of(point).to_mapping()), Environment.parse(point.environment).text

    def _close(self, place: tuple[str, str]) -> None:
        opened = self._opened.pop(place, None)
        if opened is not None:
            opened.close()


_running: dict[str, list[Session]] = {}
_stopped: set[str] = set()
_changes = threading.Lock()


def stop(run_id: str) -> None:
    """End all sessions of a run in this process, those that other threads are busy with too."""
    with _changes:
        _stopped.add(run_id)
        sessions = list(_running.get(run_id, ()))
    with shielded():
        for session in sessions:
            session.stop()


@contextmanager
def _registered(session: Session) -> Iterator[None]:
    with _changes:
        session.stopped = session.run_id in _stopped
        _running.setdefault(session.run_id, []).append(session)
    try:
        yield
    finally:
        with _changes:
            _running[session.run_id].remove(session)
            if not _running[session.run_id]:
                del _running[session.run_id]


CLOSE_TIMEOUT_S = 4.0
"""Seconds for a polite end. With what follows it (SIGTERM, SIGKILL) the whole stays below ten: whoever cancels a flow
run kills its process 30 s later, and Prefect wants some of that."""


def provision(session: Session, point: Point) -> Mapping[str, Any]:
    """Start the driver and the cluster for a point; return what is known of the cluster.

    Raises:
        InfrastructureError: They could not be had.
        UsageError: There can be no such environment.
    """
    return session.open(point).facts


def measure(session: Session, planned: PlannedTrial) -> Trial:
    """Run one trial, compute its metrics and save it: when this returns, nothing short of a lost disk loses it.

    Raises:
        DriverError: The driver was gone before the trial began, or the session was stopped.
        StoreError: It could not be saved.
    """
    driver, sweep = session.driver(planned.point), session.request.sweep
    if driver is None:
        raise DriverError("there is no driver to run the trial", next_step="provision one")
    session.use(planned.point)
    real_time = sweep.cluster_of(planned.point).real_time
    with quiet.quiet(session.pids, enabled=real_time) as load:
        outcome = driver.run(planned, sweep.workload, timeout_s=sweep.trial_timeout_s)
    if session.stopped:
        raise DriverError("the sweep was stopped")
    facts = {
        **outcome.facts,
        "cluster": {**driver.facts, **outcome.facts.get("cluster", {})},
        "packages": driver.packages,
        "host": {**driver.host, **outcome.facts.get("host", {})},
    }
    if real_time:
        facts["orchestrator"] = {"waited_s": load.waited_s, "cpu_s": load.cpu_s}
    if outcome.error is not None:
        facts["error"] = dict(outcome.error)
    if outcome.result is not None:
        facts["result"] = outcome.result
    trial = Trial(
        key=planned.key,
        point=planned.point,
        repeat=planned.repeat,
        warmup=planned.warmup,
        state=outcome.state,
        reason=outcome.reason,
        started_at=outcome.started_at,
        real_s=outcome.real_s,
        facts=facts,
        warnings=outcome.warnings,
    )
    trial, tables = judged(trial, outcome.spool, outcome.elapsed_s)
    return session.store.save(session.run_id, trial, tables)


def judged(trial: Trial, spool_folder: Path, elapsed_s: float | None) -> tuple[Trial, dict[str, Any]]:
    """The trial with what its records measured and what they show to be wrong, and these.

    A valid trial without a measurement becomes invalid.
    """
    tables: dict[str, Any] = {}
    attempts = None
    try:
        tables = read_records(spool_folder)
        attempts = Attempts.read(tables)
    except CaptureError as error:
        trial = _spoilt(trial, str(error))
    if attempts is not None and elapsed_s is not None:
        trial = _measured(trial, tables, attempts, elapsed_s)
    return replace(trial, findings=causes.find(Observation(trial, tables, attempts))), tables


def _measured(trial: Trial, tables: Tables, attempts: Attempts, elapsed_s: float) -> Trial:
    """The trial with its metrics; invalid where this host cannot emulate that."""
    metrics = metrics_of(tables, threads=trial.point.threads, elapsed_s=elapsed_s, attempts=attempts)
    trial = replace(trial, metrics=metrics)
    if limit := trial.facts["cluster"].get("limit"):
        trial = _spoilt(trial, EmulationLimit.from_mapping(limit).beyond(metrics.tasks, metrics.makespan_s))
    return trial


def _spoilt(trial: Trial, reason: str) -> Trial:
    """The trial, invalid if it was valid and there is a reason."""
    if not reason or trial.state is not TrialState.VALID:
        return trial
    return replace(trial, state=TrialState.INVALID, reason=reason)


def teardown(session: Session) -> None:
    """End the drivers and the clusters of a session."""
    session.close()


@dataclass(frozen=True)
class Steps:
    """The functions of this module, or tasks around them."""

    provision: Callable[[Session, Point], object] = provision
    measure: Callable[[Session, PlannedTrial], Trial] = measure
    teardown: Callable[[Session], object] = teardown


def run_trials(
    session: Session,
    trials: Sequence[PlannedTrial],
    *,
    steps: Steps = Steps(),
    finished: Callable[[Trial], None] = lambda trial: None,
    more: Callable[[], Sequence[PlannedTrial]] = tuple,
    hold: bool = False,
) -> None:
    """Run trials one after the other; whatever happens, nothing of the cluster is left.

    A driver that dies is replaced, and the trial in which it died is invalid. When all have run, `more` is asked for
    further ones until it has none that were not run yet. With `hold`, a cluster that did all of it stays open, and the
    caller closes the session.

    Raises:
        InfrastructureError: No cluster could be had, or `MAX_LOSSES` drivers died one after the other.
        BudgetSpent: The next trial would cost more than is left of the budget.
        StoreError: A trial could not be saved.
    """
    losses, waiting, known = 0, list(reversed(trials)), {planned.key for planned in trials}
    try:
        with _registered(session), beating(session.store, session.run_id):
            while waiting or (waiting := [planned for planned in reversed(more()) if planned.key not in known]):
                known.update(planned.key for planned in waiting)
                _afford(session, waiting[-1])
                try:
                    trial = _run_one(session, waiting[-1], steps)
                except DriverError:  # it was gone before the trial began
                    if session.stopped or losses + 1 >= MAX_LOSSES:
                        raise
                    losses += 1
                    continue
                point = waiting.pop().point
                finished(trial)
                losses = 0 if session.driver(point) or _unavailable(trial) else losses + 1
                if losses >= MAX_LOSSES:
                    raise DriverError(
                        f"{losses} drivers died one after the other",
                        where=f"{session.request.sweep.cluster_of(point).kind} cluster, run {session.run_id}",
                        cause=trial.reason,
                        next_step="the same command continues with the next trial",
                    )
    except BaseException:
        with shielded():
            session.close()  # at once: what an orchestrator has to say to its server can take longer than we have
        raise
    if hold:
        return
    with shielded():
        try:
            steps.teardown(session)
        finally:
            session.close()


def _afford(session: Session, planned: PlannedTrial) -> None:
    """Go on only if a trial is within the budget.

    Raises:
        BudgetSpent: It is not.
        StoreError: What was spent could not be read.
    """
    budget = session.request.budget
    if budget is None:
        return
    done = list(session.store.finished(session.run_id).values())
    if reason := budget.stops(session.request.sweep, done, planned):
        raise BudgetSpent(
            f"the budget ends the sweep: {reason}",
            where=f"run {session.run_id}, {len(done)} trials finished",
            next_step="they are kept and shown by `scalescope show`; the same sweep with a larger budget continues",
        )


def _run_one(session: Session, planned: PlannedTrial, steps: Steps) -> Trial:
    """Run a trial, on a new driver where there is none for it.

    A trial whose environment cannot be is invalid, and says so: a study that looks for a release goes around it. Plain
    sweeps never come to that, since their environments were built before the first trial.

    Raises:
        DriverError: The driver was gone before the trial began.
        InfrastructureError: No cluster could be had.
        StoreError: The trial could not be saved.
    """
    if session.driver(planned.point) is None:
        try:
            steps.provision(session, planned.point)
        except EnvironmentFailed as error:
            facts = {UNAVAILABLE: True}
            state = TrialState.INVALID
            trial = Trial(planned.key, planned.point, planned.repeat, planned.warmup, state, str(error), facts=facts)
            return session.store.save(session.run_id, trial)
    return steps.measure(session, planned)


UNAVAILABLE = "environment_unavailable"
"""A fact that is true of a trial of which the environment cannot be."""


def _unavailable(trial: Trial) -> bool:
    return trial.facts.get(UNAVAILABLE) is True


# ------------------------------------------------------------------ the whole run


def prepare(request: Request, *, says: Callable[[str], None] = lambda text: None) -> None:
    """Build the environments that a plan names, before anything is measured.

    Raises:
        EnvironmentFailed: There can be no such environment.
        InfrastructureError: It could not be had.
    """
    for text in dict.fromkeys(planned.point.environment for planned in request.plan):
        environments.ensure(Environment.parse(text), says=says)


def begin(
    request: Request, store: Store, *, facts: Mapping[str, Any] | None = None
) -> tuple[SweepRun, list[PlannedTrial]]:
    """Begin a run, or take up the one that was stopped; return it and the trials that it still lacks.

    Args:
        request: What is asked.
        store: Where it is kept.
        facts: What else is to be kept of the run.

    Raises:
        StoreError: The store refuses.
    """
    from scalescope.capture.host import packages

    run = store.begin(
        request.sweep,
        request.plan,
        workload_version=request.workload.version,
        fresh=request.fresh,
        facts={**(facts or {}), "packages": packages()},
        study=request.study,
    )
    with _changes:
        _stopped.discard(run.id)
    done = store.finished(run.id)
    plan = whole_plan(request, done)
    if len(plan) > len(request.plan):
        store.extend(run.id, len(plan))
    return run, [planned for planned in plan if planned.key not in done]


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


def analyse(store: Store, run_id: str, *, state: RunState = RunState.COMPLETE) -> Verdict:
    """Judge a run by the trials that have finished, and record the verdict.

    Args:
        store: Where it is kept.
        run_id: Of the run.
        state: `STOPPED` where a budget ended it before all its trials had run.

    Raises:
        StoreError: The store refuses.
    """
    run = store.run(run_id)
    verdict = diagnose(run.sweep, run.trials)
    store.finish(run_id, state, verdict)
    return verdict


def expected_cost(request: Request, trials: Sequence[PlannedTrial], store: Store) -> str:
    """What trials of a sweep will cost, in a sentence; earlier runs of the same sweep tell how long they take.

    Raises:
        InvalidField: The price table is wrong.
        StoreError: The store refuses.
    """
    earlier = store.runs(sweep=request.sweep.id, limit=EARLIER_RUNS)
    done = [trial for run in earlier for trial in run.trials]
    table = prices.load()
    return estimate(request.sweep, trials, table, done).sentence(request.sweep, table)


def abort(store: Store, run_id: str, error: BaseException) -> None:
    """Record that a run ended before its time; it can be continued."""
    with shielded():
        try:
            broken = isinstance(error, Exception) and not isinstance(error, BudgetSpent)
            store.finish(run_id, RunState.FAILED if broken else RunState.STOPPED)
        except StoreError as refused:  # the reason why the run ended matters more
            logger.warning("run %s could not be marked as ended: %s", run_id, refused)


@contextmanager
def beating(store: Store, run_id: str) -> Iterator[None]:
    """Say every now and then that the run is alive, from a thread, for trials can be long."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_LIMIT_S / 4):
            try:
                store.beat(run_id)
            except StoreError as error:  # if it lasts, the next trial cannot be saved and that ends the run
                logger.warning("%s", error)

    thread = threading.Thread(target=beat, name="scalescope-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore SIGTERM and SIGINT: a second signal must not interrupt the teardown that the first one began."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def read_records(spool_folder: Path) -> dict[str, Any]:
    """The raw records that a trial left, as far as they are whole."""
    tables: dict[str, Any] = {}
    for path in sorted(spool_folder.glob("*.spool")):
        tables.update(spool.read(path, partial=True))
    return tables
