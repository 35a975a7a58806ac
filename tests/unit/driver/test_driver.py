"""Real drivers with real local clusters: what trials can do to them, and all ways in which they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from support.waiting import wait_for

from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.driver import server
from scalescope.driver.attempt import LEFT_OUT
from scalescope.driver.open_cluster import OpenCluster
from scalescope.driver.process import Driver, TrialOutcome
from scalescope.driver.protocol import Closed, Message
from scalescope.model import spool
from scalescope.model import trial as trials
from scalescope.model.cluster import ClusterSpec
from scalescope.model.standstill import STANDSTILL
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState
from scalescope.run.trials import judged
from scalescope.workloads import load

GONE_WITHIN_S = 15

WORKLOADS = """
    import json
    import os
    import signal
    import subprocess
    import sys
    import threading
    import time

    from distributed import Client, Lock, default_client, fire_and_forget, get_client

    from scalescope.errors import WrongAnswer


    def healthy(client, items: int = 10):
        total = sum(client.gather(client.map(double, range(items))))
        if total != items * (items - 1):
            raise WrongAnswer(f"{total}")
        return {"total": total}


    def double(number):
        return 2 * number


    def pids(client):
        return sorted(client.run(os.getpid).values())


    def scheduler_state(client, key: str = "distributed.scheduler.bandwidth"):
        def ask(dask_scheduler):
            import dask

            return {
                "prefixes": sorted(dask_scheduler.task_prefixes),
                "tasks": len(dask_scheduler.tasks),
                "config": dask.config.get(key),
            }

        return client.run_on_scheduler(ask)


    def is_the_default(client):
        found = []
        thread = threading.Thread(target=lambda: found.append(default_client()))
        thread.start()
        thread.join()
        return [default_client() is client, found[0] is client]


    def opens_a_client(client):
        own = Client(client.scheduler.address)
        return default_client() is own


    def configures(client):
        import dask

        found = [dask.config.get(name, None) for name in ("scheduler", "mine.own")]
        dask.config.set({"mine.own": 1})
        return found


    def noisy(client):
        print("stdout of the workload")
        os.write(1, b'{"kind": "closed"}' + bytes([10]))
        subprocess.run(["sh", "-c", "echo stdout of a child; cat"], check=True)
        client.submit(print, "stdout of a worker").result()
        return sys.stdin.read()


    def asks(number):
        return number and get_client().submit(asks, number - 1, pure=False).result()


    def locked(number):
        with Lock("held"):
            return number


    def nests(client):
        client.submit(asks, 3, pure=False).result()


    def locks(client):
        Lock("held").acquire()
        client.gather(client.map(locked, range(3), pure=False))


    def goes_on(client):
        client.gather(client.map(lambda i: time.sleep(0.05), range(2000), pure=False))


    def naps(client):
        client.gather(client.map(time.sleep, [3600] * 2, pure=False))


    def raises(client):
        client.submit(lambda: 1 / 0).result()


    def wrong(client):
        raise WrongAnswer("the sum is 3, not 4")


    def exits(client):
        sys.exit(3)


    def interrupts(client):
        raise KeyboardInterrupt


    def returns_what_json_cannot_carry(client):
        return client


    def loses_a_worker(client):
        victim = min(client.run(os.getpid).values())
        os.kill(victim, signal.SIGKILL)
        while victim in client.run(os.getpid, on_error="ignore").values():
            time.sleep(0.05)
        return healthy(client)


    def leaves_running_tasks(client):
        fire_and_forget(client.submit(time.sleep, 600))
        while not any(client.processing().values()):
            time.sleep(0.01)


    def threads_in_use(client):
        return sum(client.run(lambda dask_worker: len(dask_worker.active_threads)).values())


    def cancels_a_task(client, seconds: float):
        future = client.submit(time.sleep, seconds)
        while not threads_in_use(client):
            time.sleep(0.01)
        future.cancel()
        while any(client.processing().values()):
            time.sleep(0.01)
        return threads_in_use(client)


    def hangs(client):
        print("about to hang", flush=True)
        threading.Event().wait()


    def hogs(client):
        client.submit(hog).result()


    def hog():
        print("about to hog", flush=True)
        sum(range(10**15))  # in C, without ever giving the interpreter lock away
"""


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workloads") / "mine.py"
    path.write_text(textwrap.dedent(WORKLOADS))
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver.start(LocalSpec(), folder=tmp_path_factory.mktemp("driver")) as driver:
        yield driver


Trial = Callable[..., TrialOutcome]


@pytest.fixture
def trial(shared: Driver, workloads: Path) -> Trial:
    def run(name: str, workers: int = 2, config: dict[str, object] | None = None, **params: object) -> TrialOutcome:
        point = Point(workers, 1, params, config or {})  # type: ignore[arg-type]
        return shared.run(PlannedTrial(0, point, 0), f"{workloads}:{name}", timeout_s=60)

    return run


def test_a_healthy_trial_is_valid_and_fully_recorded(trial: Trial, shared: Driver) -> None:
    outcome = trial("healthy", items=20)
    assert (outcome.state, outcome.reason) == (TrialState.VALID, "")
    assert outcome.result == {"total": 380}
    assert outcome.error is None
    assert outcome.elapsed_s is not None
    assert 0 < outcome.elapsed_s <= outcome.real_s
    assert outcome.started_at.endswith("+00:00")
    assert outcome.facts["cluster"]["workers"] == 2
    assert outcome.facts["cluster"]["clock"] == "real"
    assert outcome.facts["distributed"] == shared.versions["distributed"]
    assert outcome.facts["packages"]
    assert 0 < outcome.facts["host"]["load"]["ours"] <= 1
    tables = spool.read(outcome.spool / "records.spool")
    assert len(set(tables["tasks"]["key"])) == 20
    assert len(tables["workers"]["worker"]) == 2
    assert shared.facts["kind"] == "local"
    assert shared.packages["distributed"] == shared.versions["distributed"]


def test_trials_of_the_same_shape_share_exactly_their_workers(trial: Trial) -> None:
    first, second, smaller = trial("pids"), trial("pids"), trial("pids", workers=1)
    assert first.result == second.result
    assert [len(each.result) for each in (first, smaller)] == [2, 1]


def test_a_trial_starts_from_a_scheduler_without_memory_of_earlier_tasks(trial: Trial) -> None:
    trial("healthy")
    result = trial("scheduler_state").result
    assert (result["prefixes"], result["tasks"]) == ([], 0)


def test_another_dask_configuration_opens_the_cluster_anew(trial: Trial) -> None:
    key = "distributed.scheduler.unknown-task-duration"
    changed = trial("scheduler_state", workers=1, config={key: "7 s"}, key=key)
    assert changed.facts["dask_config"][key] == "7 s"
    assert changed.result["config"] == "7 s"
    usual = trial("scheduler_state", workers=1, key=key)
    assert key not in usual.facts["dask_config"]
    assert usual.result["config"] not in (None, "7 s")


def test_the_client_is_the_default_in_all_threads_unless_the_workload_opens_its_own(trial: Trial) -> None:
    """Beam waits on the event loop of the default client; on another it would notice the end of its tasks late."""
    assert trial("opens_a_client").result is True
    assert trial("is_the_default").result == [True, True]


def test_changes_of_a_trial_to_the_configuration_of_dask_are_undone(trial: Trial) -> None:
    trial("opens_a_client")
    assert trial("configures").result == [None, None]
    assert trial("configures").result == [None, None]


def test_output_and_input_of_the_workload_do_not_disturb_the_protocol(trial: Trial, shared: Driver) -> None:
    outcome = trial("noisy")
    assert (outcome.state, outcome.result) == (TrialState.VALID, "")
    log = shared.log.read_text()
    for speaker in ("the workload", "a child", "a worker"):
        assert f"stdout of {speaker}" in log


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("raises", "ZeroDivisionError", "the workload raised ZeroDivisionError: division by zero"),
        ("wrong", "WrongAnswer", "the workload computed a wrong answer: the sum is 3, not 4"),
        ("exits", "SystemExit", "the workload raised SystemExit: 3"),
        ("interrupts", "KeyboardInterrupt", "the workload raised KeyboardInterrupt"),
    ],
)
def test_a_workload_that_raises_or_exits_makes_its_trial_failed(
    name: str, kind: str, reason: str, trial: Trial, shared: Driver
) -> None:
    outcome = trial(name)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, reason)
    assert outcome.elapsed_s is not None
    assert outcome.error is not None
    assert outcome.error["type"] == kind
    assert outcome.error["where"].endswith((f"in {name}", "in <lambda>"))
    assert ".py:" in outcome.error["where"]
    assert "trial_run.py" not in outcome.error["traceback"]  # ours
    assert f"in {name}" in outcome.error["traceback"]
    assert shared.alive


def test_a_workload_that_cannot_be_loaded_makes_its_trial_failed(trial: Trial) -> None:
    outcome = trial("nothing")
    assert outcome.state is TrialState.FAILED
    assert "cannot be loaded" in outcome.reason


def test_a_workload_may_return_anything(trial: Trial) -> None:
    outcome = trial("returns_what_json_cannot_carry")
    assert (outcome.state, outcome.reason) == (TrialState.VALID, "")
    assert outcome.result.startswith(LEFT_OUT)


def test_a_lost_worker_makes_only_its_own_trial_invalid(trial: Trial) -> None:
    outcome = trial("loses_a_worker")
    assert "1 of 2 workers" in outcome.reason
    assert outcome.state is TrialState.INVALID
    assert trial("healthy").reason == ""


def test_tasks_left_running_do_not_reach_the_next_trial(trial: Trial) -> None:
    before = trial("leaves_running_tasks", workers=1)
    assert any("still ran" in warning for warning in before.warnings)
    after = trial("scheduler_state", workers=1)
    assert after.result["tasks"] == 0
    assert trial("healthy", workers=1).reason == ""


@pytest.mark.parametrize(
    ("seconds", "warned"), [(1.0, []), pytest.param(600.0, ["the cluster was opened anew"], marks=pytest.mark.thorough)]
)
def test_a_cancelled_task_that_still_runs_is_waited_for_or_its_cluster_reopened(
    seconds: float, warned: list[str], trial: Trial
) -> None:
    """The scheduler has forgotten it; it would share the worker with the tasks of the next trial."""
    assert trial("cancels_a_task", workers=1, seconds=seconds).result == 1
    after = trial("threads_in_use", workers=1)
    assert (after.result, after.state) == (0, TrialState.VALID)
    assert [warning for warning in after.warnings for said in warned if said in warning] == list(after.warnings)
    assert len(after.warnings) == len(warned)


# ---------------------------------------------------------------- light clusters


@pytest.mark.thorough
def test_a_driver_of_a_light_cluster_starts_one_fork_server_at_once(workloads: Path, tmp_path: Path) -> None:
    """It starts no second one, and its output does not reach the protocol; the cluster can be opened anew."""
    spec = LightSpec(hosts=1, check_limit=False)
    with Driver.start(spec, folder=tmp_path) as driver:
        (server,) = psutil.Process(driver.pid).children()
        wait_for(lambda: len(server.children()) == 2, "no scheduler and no host")  # they are forked one by one
        outcome = driver.run(PlannedTrial(0, Point(2, 1), 0), f"{workloads}:noisy", timeout_s=60)
        again = Point(2, 1, {}, {"distributed.scheduler.unknown-task-duration": "7 s"})
        assert driver.run(PlannedTrial(0, again, 1), f"{workloads}:healthy", timeout_s=60).reason == ""
        assert len(psutil.Process(driver.pid).children()) == 1
    assert (outcome.state, outcome.result) == (TrialState.VALID, "")
    assert "stdout of a worker" in driver.log.read_text()


# ---------------------------------------------------------------- simulated time


def test_a_driver_in_simulated_time_gives_exactly_repeatable_trials(workloads: Path, tmp_path: Path) -> None:
    point = Point(3, 1, {**load("futures-map").bind({}), "items": 6})
    said: list[str] = []
    with Driver.start(SimulatedSpec(), folder=tmp_path, on_progress=said.append) as driver:
        first, second = (driver.run(PlannedTrial(0, point, i), "futures-map", timeout_s=60) for i in range(2))
        stuck = driver.run(PlannedTrial(0, Point(1), 0), f"{workloads}:hangs", timeout_s=1)
    assert (first.reason, second.reason) == ("", "")
    assert first.elapsed_s == second.elapsed_s
    assert first.facts["cluster"]["clock"] == "virtual"
    assert first.facts["cluster"]["shows"].endswith("exactly repeatable")
    assert "after 1 s" in stuck.reason
    assert any("3 workers" in each for each in said)


# ---------------------------------------------------------------- what hangs


def hung(
    spec: ClusterSpec, tmp_path: Path, workload: str, timeout_s: float, workers: int = 2
) -> tuple[TrialOutcome, list[str]]:
    """A trial that its time limit ended, and the codes of its findings."""
    planned = PlannedTrial(0, Point(workers), 0)
    with Driver.start(spec, folder=tmp_path) as driver:
        outcome = driver.run(planned, workload, timeout_s=timeout_s)
    assert outcome.state is TrialState.INVALID
    facts = {**outcome.facts, "cluster": {}}
    trial = trials.Trial(planned.key, planned.point, 0, False, outcome.state, outcome.reason, facts=facts)
    trial, _ = judged(trial, outcome.spool, outcome.elapsed_s)
    return outcome, [finding.code for finding in trial.findings]


def test_a_standstill_of_nested_tasks_is_explained_with_their_line(workloads: Path, tmp_path: Path) -> None:
    outcome, found = hung(SimulatedSpec(), tmp_path, f"{workloads}:nests", 3.0)
    line = line_of(workloads, "return number and")
    assert re.search(
        r"^timed out after 3 s .* for [\d,]+ s.*"
        rf"2 tasks `asks` hold 2 of 2 threads at {workloads.name}:{line} in asks, in result \(client.py\); "
        r"1 task waits for a thread; last seen: nests \(",
        outcome.reason,
    )
    assert found == ["nested-client"]


def test_a_standstill_of_tasks_at_a_lock_is_explained_with_their_line(workloads: Path, tmp_path: Path) -> None:
    outcome, found = hung(SimulatedSpec(), tmp_path, f"{workloads}:locks", 3.0)
    line = line_of(workloads, 'with Lock("held"):')
    assert f"2 tasks `locked` hold 2 of 2 threads at {workloads.name}:{line} in locked, in __enter__" in outcome.reason
    assert outcome.facts[STANDSTILL]["hints"][0].startswith("Held: `held`")
    assert found == ["waiting-tasks"]


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [LocalSpec(), LightSpec()], ids=["local", "light"])
@pytest.mark.parametrize(
    ("workload", "said", "codes"),
    [
        ("nests", "hold 2 of 2 threads at", ["nested-client"]),
        ("locks", "hold 2 of 2 threads at", ["waiting-tasks"]),
        ("naps", "2 tasks `sleep` hold 2 of 2 threads at", []),
    ],
)
def test_a_standstill_in_real_time_is_explained(
    workloads: Path, tmp_path: Path, spec: ClusterSpec, workload: str, said: str, codes: list[str]
) -> None:
    outcome, found = hung(spec, tmp_path, f"{workloads}:{workload}", 12.0)
    assert said in outcome.reason
    assert found == codes


@pytest.mark.thorough
def test_a_timed_out_trial_that_still_progresses_is_not_called_a_standstill(workloads: Path, tmp_path: Path) -> None:
    outcome, found = hung(LocalSpec(), tmp_path, f"{workloads}:goes_on", 3.0)
    assert re.search(
        r"[\d,]+ tasks have not ended; .* [\d.]+ s before",
        outcome.reason,
    )
    assert outcome.facts[STANDSTILL]["groups"] == outcome.facts[STANDSTILL]["hints"] == []
    assert found == []


def line_of(path: Path, text: str) -> int:
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# ---------------------------------------------------------------- ends


def plan(workers: int = 1) -> PlannedTrial:
    return PlannedTrial(0, Point(workers), 0)


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until_gone(processes: list[psutil.Process]) -> None:
    wait_for(lambda: not alive(processes), lambda: alive(processes), GONE_WITHIN_S)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with Driver.start(LocalSpec(), folder=tmp_path) as driver:
        yield driver


def test_a_workload_that_hangs_is_stopped_and_takes_the_driver_with_it(driver: Driver, workloads: Path) -> None:
    driver.run(plan(), f"{workloads}:healthy", timeout_s=60)
    processes = family(driver.pid)
    assert len(processes) > 1
    outcome = driver.run(plan(), f"{workloads}:hangs", timeout_s=1)
    assert outcome.state is TrialState.INVALID
    assert "last seen: hangs" in outcome.reason
    assert str(workloads) in outcome.reason
    assert not driver.alive
    wait_until_gone(processes)
    assert f'File "{workloads}", line' in driver.log.read_text()


def test_sigterm_ends_an_idle_driver_cleanly(driver: Driver, workloads: Path) -> None:
    driver.run(plan(), f"{workloads}:healthy", timeout_s=60)
    processes = family(driver.pid)
    assert len(processes) > 1
    os.kill(driver.pid, signal.SIGTERM)
    wait_until_gone(processes)
    assert not driver.alive
    assert driver._manner()[0] == f"ended with exit status {128 + signal.SIGTERM}"


def when_logged(log: Path, text: str, act: Callable[[], object]) -> threading.Thread:
    """Do something, in a thread, as soon as a text is in the log."""

    def watch() -> None:
        wait_for(lambda: text in log.read_text(), f"{text} was never logged", 60)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_closing_the_driver_stops_its_trial(driver: Driver, workloads: Path) -> None:
    closer = when_logged(driver.log, "about to hang", driver.close)
    outcome = driver.run(plan(), f"{workloads}:hangs", timeout_s=60)
    closer.join()
    assert outcome.state is TrialState.INVALID
    assert "parent asked" in outcome.reason
    assert not psutil.pid_exists(driver.pid)


def test_workers_do_not_outlive_a_driver_that_is_killed(driver: Driver, workloads: Path) -> None:
    processes: list[psutil.Process] = []

    def kill() -> None:
        processes.extend(family(driver.pid))
        os.kill(driver.pid, signal.SIGKILL)
        wait_until_gone(processes)

    killer = when_logged(driver.log, "about to hog", kill)
    outcome = driver.run(plan(), f"{workloads}:hogs", timeout_s=60)
    killer.join()
    assert "killed by SIGKILL" in outcome.reason
    assert len(processes) > 1
    assert not alive(processes)


ORCHESTRATOR = """
    import sys
    from pathlib import Path

    from scalescope.driver.process import Driver
    from scalescope.clusters.local.spec import LocalSpec
    from scalescope.model.sweep import PlannedTrial, Point

    folder, workloads = Path(sys.argv[1]), sys.argv[2]
    with Driver.start(LocalSpec(), folder=folder) as driver:
        print(driver.pid, flush=True)
        driver.run(PlannedTrial(0, Point(1), 0), f"{workloads}:hangs", timeout_s=60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_no_process_outlives_a_killed_orchestrator(number: signal.Signals, workloads: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(ORCHESTRATOR), str(tmp_path), str(workloads)]
    orchestrator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert orchestrator.stdout is not None
    pid = int(orchestrator.stdout.readline())
    while "about to hang" not in (tmp_path / "driver.log").read_text():
        assert orchestrator.poll() is None
        time.sleep(0.05)
    processes = family(pid)
    assert len(processes) > 1
    os.killpg(orchestrator.pid, number)
    orchestrator.communicate()
    wait_until_gone(processes)
    assert orchestrator.returncode == -number


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(LocalSpec(), id="local", marks=pytest.mark.thorough),
        pytest.param(LightSpec(hosts=1, check_limit=False), id="light"),
    ],
)
def test_files_in_the_working_folder_are_not_imported_instead_of_dask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: ClusterSpec
) -> None:
    for name in ("dask", "distributed", "json", "gc"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    (tmp_path / "beside.py").write_text("def answer(): return 42\n")
    lines = "import beside\ndef work(client):\n    return client.submit(beside.answer).result()\n"
    (tmp_path / "mine.py").write_text(lines)
    monkeypatch.chdir(tmp_path)
    with Driver.start(spec, folder=tmp_path / "run") as driver:
        outcome = driver.run(PlannedTrial(0, Point(1), 0), "mine:work", timeout_s=60)
    assert (outcome.state, outcome.result, outcome.reason) == (TrialState.VALID, 42, "")
    assert not (tmp_path / "ran").exists()


def test_an_ending_driver_waits_until_its_cluster_is_closed() -> None:
    began, over, opened = threading.Event(), threading.Event(), OpenCluster(lambda *phase: None)

    class Slow:
        spec, left, removed = LocalSpec(), "", frozenset[str]()

        def close(self) -> None:
            began.set()
            over.wait(10)

    opened.cluster = Slow()  # type: ignore[assignment]
    closing, ending = threading.Thread(target=opened.close), threading.Thread(target=opened.abandon)
    closing.start()
    assert began.wait(10)
    ending.start()
    ending.join(0.1)
    assert ending.is_alive()
    over.set()
    ending.join(10)
    assert not ending.is_alive()
    closing.join()


def test_leftovers_of_a_cluster_are_not_reported_once_a_later_cluster_has_removed_them() -> None:
    class Closes:
        spec = LocalSpec()

        def __init__(self, left: str = "", *removed: str) -> None:
            self.left, self.removed = left, set(removed)

        def close(self) -> None:
            pass

    opened, told = OpenCluster(lambda *phase: None), "scalescope-1 is not gone"
    for cluster, left in ((Closes(told), [told]), (Closes("other", "scalescope-2"), [told, "other"])):
        opened.cluster = cluster  # type: ignore[assignment]
        opened.close()
        assert opened.left == left
    opened.cluster = Closes("", "scalescope-1")  # type: ignore[assignment]
    opened.close()
    assert opened.left == ["other"]


def test_a_cluster_whose_close_fails_or_takes_too_long_is_reported_as_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Message] = []

    class Replies:
        def send(self, message: Message) -> None:
            said.append(message)

    def stop(*_: object, **__: object) -> NoReturn:
        raise SystemExit

    class Breaks:
        spec, left, removed = LocalSpec(), "", frozenset[str]()

        def close(self) -> None:
            raise OSError("no answer")

    monkeypatch.setattr(server, "_exit", stop)
    requests, others = os.pipe()
    serving = server.DriverServer(requests, Replies())  # type: ignore[arg-type]
    serving._cluster.cluster = Breaks()  # type: ignore[assignment]
    for end in (
        lambda: serving._end_in_order(server._DriverEnd("asked to", 0)),
        lambda: serving._expired("closing", 1.0),
    ):
        with pytest.raises(SystemExit):
            end()
        closed = said.pop()
        assert isinstance(closed, Closed)
        assert "scalescope reap" in closed.left
    os.close(requests)
    os.close(others)
