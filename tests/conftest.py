"""Fixtures that several packages need: a Prefect server, runs with records, and studies with their answers."""

from __future__ import annotations

import copy
import gc
import json
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from support import groups

from scalescope.analysis.measure import measure
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.metrics import WORKER_TIME, Metrics
from scalescope.model.records import TABLES, from_rows
from scalescope.model.study import Study
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.report import run_difference
from scalescope.report.run_difference import RunDifference
from scalescope.store import records
from scalescope.store.schema import RunState
from scalescope.store.store import SweepRun
from scalescope.studies.comparison import judge as comparison
from scalescope.studies.release import judge as release
from scalescope.studies.threshold import judge as threshold
from scalescope.studies.threshold.question import ThresholdQuestion, ThresholdReading
from scalescope.studies.threshold.search import further as further_values

PLUGINS = "deployed fake_driver golden groups kubernetes postgresql pool round_trials small_records"
pytest_plugins = [f"support.{name}" for name in PLUGINS.split()]

settings.register_profile("unhurried", deadline=None)  # a host that is busy is no failure
settings.load_profile("unhurried")

# Folders of tests that mostly wait for daemons
WAITING = ("tests/kubernetes/", "tests/sge/", "tests/slurm/")


def pytest_collection() -> None:
    """Thousands of tests and all modules stay until the end: looking for garbage among them takes half of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    """Started by a script in the background, tests and what they start would ignore Ctrl-C, and some wait for it.

    An environment is compiled where it is imported: all of it takes most of the seconds of building it.
    """
    os.environ.setdefault("UV_COMPILE_BYTECODE", "0")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are cores: tests with daemons mostly wait for them."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests of a file, and all files that share a Kubernetes or a Prefect server with deployments.

    The cells of the matrix of faults share nothing.
    """
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("evidence/faults/test_sweep.py"):
                return nodeid
            return groups.group(nodeid)

        def remove_node(self, node: Any) -> str | None:
            """Of a process that died, only what it had not begun is given to others.

            Upstream gives out all of it: they would wait forever for files that are finished, or die of the same test.
            """
            work = self.assigned_work[node]
            pending = {file: [test for test, done in tests.items() if not done] for file, tests in work.items()}
            died_in = next(((file, tests[0]) for file, tests in pending.items() if tests), None)
            if died_in is None:
                return super().remove_node(node)  # it had finished
            file, test = died_in
            work[file][test] = True
            for name in [name for name, tests in work.items() if all(tests.values())]:
                del work[name]
            super().remove_node(node)
            return test

    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that mostly wait come first, so that processes that share the tests end together."""
    items.sort(key=lambda item: not item.nodeid.startswith((*WAITING, *groups.DEPLOYED)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The seconds of each folder of tests, summed over the processes that share them."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("/")[1]] += report.duration
    terminalreporter.section("seconds of each folder")
    for folder, spent in sorted(seconds.items(), key=lambda each: -each[1]):
        terminalreporter.write_line(f"{spent:8.1f}s tests/{folder}")


Missing = Callable[[str, str], NoReturn]


@pytest.fixture(scope="session")
def missing() -> Missing:
    """What a test does that needs a part which is not here: `missing("slurm", why)` skips it.

    It fails instead where the environment variable SCALESCOPE_REQUIRE names the part: `SCALESCOPE_REQUIRE=slurm,ssh`.
    """

    def end(part: str, why: str) -> NoReturn:
        required = os.environ.get("SCALESCOPE_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if part in required else pytest.skip)(why)

    return end


@pytest.fixture(scope="session", autouse=True)
def _leases_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests have a ledger and a temporary folder of their own, and look at no Kubernetes of this user."""
    from scalescope import leases

    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        folder = tmp_path_factory.mktemp("leases")
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="scalescope-tests-", ignore_cleanup_errors=True)
        )
        os.chmod(temporary, 0o755)  # some servers of the tests run as another user
        patch.setattr(tempfile, "tempdir", temporary)
        patch.setenv(leases.VARIABLE, str(folder))
        patch.setenv("KUBECONFIG", str(folder / "no-kubeconfig"))
        yield


@pytest.fixture(scope="module", autouse=True)
def _settings_of_dask() -> Iterator[None]:
    """A simulated or light cluster makes its settings the process's: tests of other files do not inherit them.

    Sections that an import brings stay, as the import does.
    """
    import dask
    import distributed  # noqa: F401  # it brings its own section

    config, defaults = copy.deepcopy(dask.config.config), list(dask.config.defaults)
    yield
    dask.config.config.update(config)
    brought = [each for each in dask.config.defaults[len(defaults) :] if each.keys().isdisjoint(config)]
    dask.config.defaults[:] = defaults + brought


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One temporary Prefect server for the whole session; a start costs many seconds."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing import utilities
    from support import prefect_home

    folder = prefect_home.fill(tmp_path_factory.mktemp("prefect"), "prefect-test.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utilities, "mkdtemp", lambda: str(folder))
        with (
            utilities.prefect_test_harness(server_startup_timeout=120),
            temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),  # a second at the end of every flow
        ):
            yield


@dataclass(frozen=True)
class RecordedRun:
    """A run as the store would return it, and the records of its trials by key."""

    run: SweepRun
    tables: dict[str, dict[str, Any]]

    def read(self, trial: Trial) -> dict[str, Any]:
        return self.tables[trial.key]


Rename = Callable[[str], str]


def _records(workers: int, waves: int, rename: Rename) -> dict[str, Any]:
    """Each worker runs a task a second, one after the other, in two stages; the last worker never does."""
    tasks: list[dict[str, Any]] = []
    needs: list[tuple[int, int]] = []
    for wave in range(waves):
        for i in range(max(workers - 1, 1)):
            stage = "load" if wave < waves / 2 else "sum"
            begin = 1000.0 + wave
            if wave:
                needs.append((len(tasks), len(tasks) - max(workers - 1, 1)))
            names = {"prefix": stage, "group": f"{stage}-abcdef", "key": f"{stage}-{wave}-{i}"}
            row: dict[str, Any] = {column: rename(name) for column, name in names.items()}
            row |= {"worker": rename(f"tcp://10.0.0.{i}:1"), "thread": i + 1, "assigned": begin, "runnable": begin}
            tasks.append(row | {"start": begin, "stop": begin + 1, "done": begin + 1, "span": wave + 1.0})
    tables = {
        "tasks": tasks,
        "dependencies": [{"task": task, "needs": need} for task, need in needs],
        "workers": [
            {"worker": rename(f"tcp://10.0.0.{i}:1"), "name": rename(f"{i}"), "host": "h", "nthreads": 1}
            | {"joined": 990.0, "left": 0.0, "reason": ""}
            for i in range(workers)
        ],
        "memory": [
            {"worker": name, "time": 1000.0 + second, "rss": 2**30, "managed": 2**20, "spilled": 0, "cpu": 1.0}
            for name in (rename("tcp://10.0.0.0:1"), "scheduler")
            for second in range(waves)
        ],
    }
    return {name: from_rows(name, tables.get(name, ())) for name in TABLES}


@pytest.fixture(scope="session")
def recorded_run() -> Callable[..., RecordedRun]:
    """Builds a run of one trial for each number of workers; `rename` changes every name from outside."""

    def build(workers: Sequence[int] = (4,), *, waves: int = 4, rename: Rename = str, **given: Any) -> RecordedRun:
        tables, trials = {}, []
        for count in workers:
            point = Point(count, 1, {"items": count, "label": rename("text")})
            records = _records(count, waves, rename)
            metrics = measure(records, threads=count, elapsed_s=float(waves))
            facts = {"cluster": {"kind": "simulated", "clock": "virtual", "shows": rename("shows")}, "python": "3.11"}
            facts |= {"packages": {rename("dask"): rename("2026.1")}, "host": {"hostname": rename("host")}}
            trial = Trial(f"{point.id}-r0", point, 0, False, TrialState.VALID, metrics=metrics, facts=facts)
            trial = replace(trial, **{"records": "somewhere", **given})
            if trial.state is not TrialState.VALID:
                trial = replace(trial, metrics=None)
            trials.append(trial)
            tables[trial.key] = records
        sweep = Sweep(rename("mine"), params={"label": rename("text")})
        run = SweepRun(
            *("20260101-000000-abcdef", sweep, 1, RunState.COMPLETE, len(trials), tuple(trials)),
            verdict=diagnose(sweep, trials),
            created_at="2026-01-01T00:00:00.5+00:00",
            finished_at="2026-01-01T00:01:00+00:00",
            where=rename("store.db"),
        )
        return RecordedRun(run, tables)

    return build


@pytest.fixture
def two_runs(recorded_run: Callable[..., RecordedRun], tmp_path: Path) -> Callable[..., RunDifference]:
    """Why a run of six waves of tasks took longer than one of four; `rename` changes every name from outside."""

    def build(rename: Rename = str) -> RunDifference:
        sides = []
        for name, waves in (("a", 4), ("b", 6)):
            made = recorded_run((2,), waves=waves, rename=rename)
            [trial], [tables] = made.run.trials, made.tables.values()
            records.write(str(tmp_path / name), tables)
            sides.append([replace(trial, records=str(tmp_path / name))])
        return run_difference.of_trials(*sides, labels=(rename("one"), rename("two")))

    return build


@dataclass(frozen=True)
class Answered:
    """A study as the store would return it, judged as the flows judge it, and its runs."""

    study: Study
    runs: list[SweepRun]


def _measured(point: Point, repeat: int, value: float | None, **given: Any) -> Trial:
    """A trial that took as many seconds as it had tasks; one that is not valid where there is no value."""
    key = f"{point.id}-r{repeat}"
    if value is None:
        return Trial(key, point, repeat, False, TrialState.INVALID, reason="lost a worker", **given)
    ones = ("span_s", "ideal_s", "efficiency", "schedule_quality", "parallelism", "mean_parallelism")
    counts = ("widest_stage", "workers_used", "peak_parallelism", "peak_runnable")
    numbers = {**dict.fromkeys(("makespan_s", "elapsed_s", "work_s"), float(value)), **dict.fromkeys(ones, 1.0)}
    numbers |= {**dict.fromkeys(counts, 1), "tasks": round(value)}
    metrics = Metrics.from_mapping({**numbers, "worker_time_s": dict.fromkeys(WORKER_TIME, 1.0)})
    return Trial(key, point, repeat, False, TrialState.VALID, metrics=metrics, **given)


def _answered(
    kind: str, question: dict[str, Any], found: Any, runs: dict[str, list[Trial]], alarm: bool, extra: Any = None
) -> Answered:
    made = [
        SweepRun(
            *(f"20260101-00000{i}-abcdef", Sweep(workload), 1, RunState.COMPLETE, len(trials), tuple(trials)),
            study=f"{kind}-20260101-000000-abcdef",
            where="store.db",
        )
        for i, (workload, trials) in enumerate(runs.items())
    ]
    study = Study(
        id=f"{kind}-20260101-000000-abcdef",
        kind=kind,
        question=json.loads(json.dumps(question)),
        runs=tuple(run.id for run in made),
        line=found.line,
        result=json.loads(json.dumps({**found.to_mapping(), **(extra or {})}, allow_nan=False)),
        alarm=alarm,
        created_at="2026-01-01T00:00:00+00:00",
        finished_at="2026-01-01T00:01:00+00:00",
        where="store.db",
    )
    return Answered(study, made)


@pytest.fixture(scope="session")
def threshold_study() -> Callable[..., Answered]:
    """Searches items from 50 to 400 for jumps of `tasks`, which a function of items and repeat gives."""

    def build(tasks: Callable[[int, int], float | None], *, workload: str = "mine", **design: Any) -> Answered:
        question = ThresholdQuestion(**{"low": 50, "high": 400, "metric": "tasks", "axis": "items", **design})
        readings: list[ThresholdReading] = []
        trials: list[Trial] = []
        while values := further_values(question, readings):
            for value in values:
                point = Point(300, 1, {"items": round(value)})
                repeat = sum(trial.point == point for trial in trials)
                trials.append(_measured(point, repeat, tasks(round(value), repeat)))
                readings.append(
                    ThresholdReading(value, None if trials[-1].metrics is None else trials[-1].metrics.tasks)
                )
        found = threshold.judge(question, readings)
        asked = {"workload": workload, "params": {"seconds": 10}, "values": {"workers": 300}, **question.to_mapping()}
        return _answered("threshold", asked, found, {workload: trials}, alarm=not found.resolved)

    return build


@pytest.fixture(scope="session")
def release_study() -> Callable[..., Answered]:
    """Searches releases for that which moved `tasks`, which a function of the place of a release gives.

    A release of which that is None cannot be installed.
    """

    def build(
        labels: Sequence[str], tasks: Callable[[int], float | None], *, extra: Any = None, **design: Any
    ) -> Answered:
        given = {"mode": release.Mode.METRIC, "subject": "mypackage", "symptom": "has tasks", "metric": "tasks"}
        given |= design
        question = release.ReleaseQuestion(labels=tuple(labels), **given)
        environments = [f"step-{place} = mypackage=={place}.0" for place in range(len(labels))]
        readings: list[release.ReleaseReading] = []
        trials: list[Trial] = []
        while asks := release.further(question, readings):
            for ask in asks:
                value = tasks(ask.candidate)
                readings.append(release.ReleaseReading(ask.candidate, ask.turn, value, unavailable=value is None))
                point = Point(199, 1, {"items": 199}, environment=environments[ask.candidate])
                trials.append(_measured(point, ask.turn, value))
        found = release.judge(question, readings)
        asked = {"workload": "mine", "values": {"workers": 199}, **question.to_mapping(), "environments": environments}
        bisected = found.first_bad is not None
        return _answered("release", asked, found, {"mine": trials}, not bisected, extra if bisected else None)

    return build


@pytest.fixture(scope="session")
def comparison_study() -> Callable[..., Answered]:
    """Compares pairs of seconds, given by workload; of several, all are judged together."""

    def build(pairs: Mapping[str, Sequence[tuple[float | None, float | None]]]) -> Answered:
        a, b = {"partition_size": 1}, {"partition_size": 4}
        found, runs = [], {}
        for name, measured in pairs.items():
            question = comparison.ComparisonQuestion(
                name=name if len(pairs) > 1 else "", a="A (partition_size=1)", b="B (partition_size=4)"
            )
            found.append(comparison.judge(question, measured))
            sides = [Point(4, 1, each) for each in (a, b)]
            runs[name] = [_measured(sides[i], n, pair[i]) for n, pair in enumerate(measured) for i in (0, 1)]
        asked = {"workload": next(iter(pairs)), "workloads": list(pairs), "a": a, "b": b, "values": {"workers": 4}}
        asked |= {"metric": "makespan_s", "smallest_effect": 0.03, "max_pairs": 20}
        slower = comparison.ComparisonDecision.SLOWER
        if len(found) == 1:
            return _answered("comparison", asked, found[0], runs, found[0].decision is slower)
        family = comparison.family(found)
        return _answered("comparison", asked, family, runs, family.count(slower) > 0)

    return build
