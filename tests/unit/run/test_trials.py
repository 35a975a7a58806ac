from __future__ import annotations

import importlib.util
import pickle
import resource
import signal
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_driver import STANDS
from support.requests import asked

from scalescope.errors import BudgetSpent, CaptureError, ClusterError, DriverError, InvalidField, StoreError, UsageError
from scalescope.model.emulation_limit import EmulationLimit
from scalescope.model.extras import install_command
from scalescope.model.finding import Severity
from scalescope.model.trial import Trial, TrialState
from scalescope.run import orchestrator_load, price_table
from scalescope.run.drivers import Drivers, registered, stop
from scalescope.run.progress import Meter, Progress
from scalescope.run.request import RunRequest
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.signals import noted, shielded
from scalescope.run.sweep import abort, analyse, begin, run_sweep
from scalescope.run.trials import MAX_LOSSES, run_trials
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


def carry_out(request: RunRequest, *, runner: Runner | None = None) -> tuple[list[Trial], Drivers]:
    """Run the trials of a sweep without a verdict."""
    finished: list[Trial] = []
    with request.open_store() as store:
        run, waiting = begin(request, store)
        session = Drivers(request, run.id, store)
        try:
            run_trials(session, waiting, runner=runner, finished=finished.append)
        except BaseException as error:
            abort(store, run.id, error)
            raise
    return finished, session


def latest(address: str) -> SweepRun:
    with Store.open(address) as store:
        return store.run("latest")


def saved(address: str) -> tuple[Trial, ...]:
    return latest(address).trials


class Failing(Runner):
    """A runner that raises an error instead of one of the steps."""

    def __init__(self, step: str, error: Exception) -> None:
        super().__init__()
        self._step, self._error = step, error

    def do(self, step: RunStep[Any], *arguments: Any) -> Any:
        if step.name == self._step:
            raise self._error
        return super().do(step, *arguments)


def test_all_trials_run_in_the_planned_order_on_one_driver(fake: Any, address: str) -> None:
    request = asked({**SWEEP, "repeats": 2}, store=address)
    finished, session = carry_out(request)
    assert fake.begun == list(request.plan)
    assert [trial.key for trial in finished] == [planned.key for planned in request.plan]
    assert all(trial.counts for trial in finished)
    assert len(fake.started) == 1
    assert fake.started[0].closed == 1
    assert session.pids == []


def test_each_trial_may_have_a_driver_of_its_own(fake: Any, address: str) -> None:
    request = replace(asked(SWEEP, store=address), own_drivers=True)
    finished, session = carry_out(request)
    assert (len(finished), len(fake.started), session.pids) == (3, 3, [])
    assert [each.closed for each in fake.started] == [1, 1, 1]


def test_a_trial_has_its_metrics_and_facts_about_cluster_and_host(fake: Any, address: str) -> None:
    carry_out(asked({**SWEEP, "axes": {"workers": [2]}}, store=address))
    [trial] = saved(address)
    assert trial.metrics is not None
    assert trial.metrics.makespan_s == 1.0
    assert trial.metrics.workers_used == 2
    assert trial.facts["cluster"]["kind"] == "simulated"
    assert trial.facts["cluster"]["scaled"] is True
    assert trial.facts["host"] == {"hostname": "fake", "busy": 0.5}
    assert trial.facts["packages"] == {"fake": "1"}
    assert trial.facts["result"] == {"items": 1}
    assert "orchestrator" not in trial.facts
    assert trial.records


def test_the_spool_of_a_trial_is_removed_as_soon_as_it_is_saved(fake: Any, address: str) -> None:
    left: list[list[Path]] = []

    def look(trial: Trial) -> None:
        left.append([path for driver in fake.started for path in driver.folder.rglob("*.spool")])

    request = asked(SWEEP, store=address)
    with request.open_store() as store:
        run, waiting = begin(request, store)
        run_trials(Drivers(request, run.id, store), waiting, finished=look)
    assert left == [[], [], []]


def test_the_load_of_the_orchestrator_is_measured_on_a_real_time_cluster(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator_load, "wait_until_quiet", lambda processes: 0.75)
    carry_out(asked({**SWEEP, "cluster": "light"}, store=address))
    for trial in saved(address):
        assert trial.facts["orchestrator"]["waited_s"] == 0.75
        assert trial.facts["orchestrator"]["cpu_s"] >= 0


def test_a_finished_run_has_a_verdict_and_is_not_resumed(fake: Any, address: str) -> None:
    request = asked(SWEEP, store=address)
    carry_out(request)
    with request.open_store() as store:
        verdict = analyse(store, store.run("latest").id)
        run = store.run("latest")
        assert begin(request, store)[0].id != run.id
    assert run.state is RunState.COMPLETE
    assert run.verdict == verdict
    assert verdict.severity in Severity


def test_titles_of_trials_name_the_values_that_differ(address: str) -> None:
    sweep = {**SWEEP, "axes": {"workers": [1, 20], "seconds": [1, 2]}, "repeats": 3, "warmups": 1}
    request = asked(sweep, store=address)
    titles = Meter(request.sweep, request.plan, done=0, tell=lambda progress: None).titles
    assert len(titles) == len(request.plan)
    assert "20 workers, 4 items, seconds=2.0 · 3/3" in titles.values()
    assert "1 worker, 4 items, seconds=1.0 · warm-up 1/1" in titles.values()


def test_progress_shows_how_long_the_remaining_trials_take(
    address: str, monkeypatch: pytest.MonkeyPatch, fake: Any
) -> None:
    request = asked({**SWEEP, "axes": {"workers": [1, 2, 4]}}, store=address)
    heard, now = list[str](), [100.0]
    monkeypatch.setattr("scalescope.run.progress.time.monotonic", lambda: now[0])
    meter = Meter(request.sweep, request.plan, done=0, tell=lambda progress: heard.append(progress.line))
    spoilt = {"repeat": 0, "warmup": False, "state": TrialState.INVALID, "reason": "lost"}
    for planned in request.plan:
        now[0] += 60.0
        meter.finished(Trial(planned.key, planned.point, **spoilt))
    assert [text.partition("lost")[2] for text in heard] == [" (about 2 min left)", " (about 60 s left)", ""]


@pytest.mark.parametrize(
    ("what", "state", "reason", "drivers"),
    [
        ("fail", TrialState.FAILED, "", 1),
        ("nothing", TrialState.INVALID, "task", 1),
        ("invalid", TrialState.INVALID, "because it should invalid", 1),
        ("die", TrialState.INVALID, "", 2),
    ],
)
def test_a_failed_or_invalid_trial_does_not_end_the_run(
    what: str, state: TrialState, reason: str, drivers: int, fake: Any, address: str
) -> None:
    fake.script = {1: what}
    finished, _ = carry_out(asked(SWEEP, store=address))
    assert [trial.state for trial in finished] == [TrialState.VALID, state, TrialState.VALID]
    assert reason in finished[1].reason
    assert (finished[1].metrics is not None) is (what == "invalid")
    assert finished[1].facts.get("error", {}).get("type") == ("ValueError" if what == "fail" else None)
    assert [bool(driver.closed) for driver in fake.started] == [True] * drivers


@pytest.mark.parametrize("what", STANDS)
def test_a_trial_with_a_standstill_is_repeated_once(fake: Any, address: str, what: str) -> None:
    fake.script = {0: what}
    carry_out(asked({**SWEEP, "axes": {"workers": [2]}}, store=address))
    [trial] = saved(address)
    assert trial.counts
    [warning] = trial.warnings
    assert warning.endswith(f"because it should {what}")
    assert trial.facts["cluster"]["held_worker_s"] == pytest.approx(2 * 0.1)  # the first attempt cost too
    assert len(fake.begun) == 2


def test_a_trial_that_stands_still_twice_is_invalid(fake: Any, address: str) -> None:
    fake.script = dict.fromkeys(range(2), "stand still")
    finished, _ = carry_out(asked(SWEEP, store=address))
    assert [trial.state for trial in finished] == [TrialState.INVALID, TrialState.VALID, TrialState.VALID]
    assert finished[0].reason.endswith("stand still")
    assert len(fake.begun) == 4


def test_a_trial_beyond_the_limit_of_emulation_is_invalid(fake: Any, address: str) -> None:
    fake.limit = EmulationLimit(seconds_per_task=0.1).to_mapping()
    carry_out(asked(SWEEP, store=address))
    found = {trial.point.workers: trial for trial in saved(address)}
    assert found[1].state is TrialState.VALID
    assert found[4].state is TrialState.INVALID
    assert "this host" in found[4].reason


def test_a_trial_with_little_work_is_valid_beyond_the_emulation_limit(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.limit = EmulationLimit(seconds_per_task=0.1).to_mapping()
    monkeypatch.setattr("scalescope.run.trials.is_trifle", lambda metrics: True)
    carry_out(asked(SWEEP, store=address))
    assert {trial.state for trial in saved(address)} == {TrialState.VALID}


def test_a_sweep_that_the_host_cannot_emulate_is_simulated_instead(fake: Any, address: str) -> None:
    request = asked({**SWEEP, "cluster": "light"}, store=address)
    fake.limit = EmulationLimit(seconds_per_task=0.0).to_mapping()
    assert run_sweep(request).run.sweep.cluster.kind == "light"
    fake.limit = EmulationLimit(seconds_per_task=0.1).to_mapping()
    told: list[str] = []
    done = run_sweep(replace(request, fresh=True), Telling(told))
    assert done.run.sweep.cluster.kind == "simulated"
    assert {trial.point.workers for trial in done.run.trials} == {trial.point.workers for trial in saved(address)}
    assert len([text for text in told if "simulated cluster" in text]) == 1


class Telling(Runner):
    """A runner that keeps notable progress texts."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def tell(self, progress: Progress) -> None:
        if progress.notable:
            self._told.append(progress.text)


def test_a_driver_that_died_before_a_trial_is_replaced_without_losing_it(fake: Any, address: str) -> None:
    fake.script = {1: "gone"}
    request = asked(SWEEP, store=address)
    finished, _ = carry_out(request)
    assert [trial.key for trial in finished] == [planned.key for planned in request.plan]
    assert all(trial.counts for trial in finished)
    assert len(fake.started) == 2


@pytest.mark.parametrize("how", ["die", "gone"])
def test_drivers_that_keep_dying_end_the_sweep(fake: Any, address: str, how: str) -> None:
    fake.script = dict.fromkeys(range(20), how)
    with pytest.raises(DriverError):
        carry_out(asked({**SWEEP, "repeats": 5}, store=address))
    assert len(fake.started) == MAX_LOSSES
    assert latest(address).state is RunState.FAILED


def test_a_valid_trial_resets_the_count_of_lost_drivers(fake: Any, address: str) -> None:
    fake.script = dict.fromkeys((0, 1, 3, 4, 6, 7), "die")
    finished, _ = carry_out(asked({**SWEEP, "repeats": 3}, store=address))
    assert len(finished) == 9


def test_a_stopped_sweep_is_resumed_without_repeating_trials(fake: Any, address: str) -> None:
    fake.script = {2: KeyboardInterrupt()}
    request = asked({**SWEEP, "repeats": 2}, store=address)
    with pytest.raises(KeyboardInterrupt):
        carry_out(request)
    assert fake.started[0].closed
    stopped = latest(address)
    assert stopped.state is RunState.STOPPED
    assert len(stopped.trials) == 2

    finished, _ = carry_out(request)
    assert [trial.key for trial in finished] == [planned.key for planned in request.plan[2:]]
    assert (latest(address).id, len(saved(address))) == (stopped.id, 6)


def test_a_sweep_without_a_cluster_starts_no_trial(fake: Any, address: str, refusal: Exception) -> None:
    fake.refusals += [refusal] * 3
    with pytest.raises(ClusterError, match="no cluster today"):
        carry_out(asked(SWEEP, store=address))
    assert fake.begun == []


def test_the_driver_is_closed_when_a_trial_cannot_be_saved(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(StoreError):
        carry_out(asked(SWEEP, store=address))
    assert fake.started[0].closed
    assert len(fake.begun) == 1


def test_the_driver_is_closed_even_if_the_teardown_task_fails(fake: Any, address: str) -> None:
    with pytest.raises(OSError, match="orchestrator"):
        carry_out(asked(SWEEP, store=address), runner=Failing("teardown", OSError("the orchestrator's server is gone")))
    assert fake.started[0].closed


@pytest.mark.parametrize("by_a_signal", [True, False])
def test_a_sweep_is_stopped_if_a_signal_preceded_the_error_and_failed_otherwise(
    fake: Any, address: str, by_a_signal: bool
) -> None:
    class Engine(Runner):
        def do(self, step: RunStep[Any], *arguments: Any) -> Any:
            try:
                if by_a_signal:
                    signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise RuntimeError("the engine crashed") from None
            raise RuntimeError("the engine crashed")

    with pytest.raises(RuntimeError), noted(signal.SIGINT), noted(signal.SIGTERM):
        carry_out(asked(SWEEP, store=address), runner=Engine())
    assert latest(address).state == ("stopped" if by_a_signal else "failed")


def test_a_trial_is_not_saved_if_another_thread_stops_the_run(fake: Any, address: str) -> None:
    request = asked(SWEEP, store=address)

    def stopped_meanwhile(driver: Any) -> str:
        thread = threading.Thread(target=stop, args=(latest(address).id,))
        thread.start()
        thread.join()
        return "die"

    fake.script = {1: stopped_meanwhile}
    with pytest.raises(DriverError, match="stopped"):
        carry_out(request)
    assert len(saved(address)) == 1
    assert len(fake.started) == 1
    assert len(carry_out(request)[0]) == 2  # a stopped run can be resumed


def test_a_driver_that_starts_while_its_run_is_stopped_is_closed(fake: Any, address: str) -> None:
    request = asked(SWEEP, store=address)
    with request.open_store() as store:
        run, waiting = begin(request, store)
        session = Drivers(request, run.id, store, says=lambda text: stop(run.id))
        with pytest.raises(DriverError, match="the sweep was stopped"):
            run_trials(session, waiting)
    assert [driver.closed for driver in fake.started] == [1]
    assert fake.begun == []


@pytest.mark.parametrize("end", [Drivers.close, lambda drivers: stop(drivers.run_id)], ids=["close", "stop"])
def test_stuck_drivers_are_closed_in_parallel(fake: Any, address: str, end: Callable[[Drivers], None]) -> None:
    request = asked({**SWEEP, "axes": {"workers": [1], "cluster": ["simulated", "light", "local"]}}, store=address)
    with request.open_store() as store, registered(session := Drivers(request, "run", store)):
        for planned in request.plan:
            session.open(planned.point)
        together = threading.Barrier(len(fake.started), timeout=10)
        for driver in fake.started:
            driver.close = lambda timeout_s: together.wait()
        end(session)


def test_a_second_signal_does_not_interrupt_a_teardown() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with shielded():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_parallel_clusters_in_real_time_are_refused() -> None:
    with pytest.raises(InvalidField, match=r"parallel_clusters: .*real time"):
        asked({**SWEEP, "cluster": "light"}, parallel_clusters=2)


def test_a_missing_package_is_refused_before_a_driver_starts(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    absent = ("asyncssh", "apache_beam")

    def find(name: str, *rest: Any) -> Any:
        return None if name in absent else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr("scalescope.workloads.find_spec", find)
    with pytest.raises(UsageError) as refused:
        asked({**SWEEP, "cluster": {"kind": "ssh", "hosts": ["node1"]}})
    assert refused.value.next_step == install_command("ssh")
    with pytest.raises(UsageError) as refused:
        asked({**SWEEP, "workload": "beam-pardo"})
    assert install_command("beam") in refused.value.next_step
    asked({**SWEEP, "workload": "beam-pardo", "environment": "apache-beam==2.50.0"})  # its driver checks that
    assert fake.started == []


@pytest.mark.parametrize(
    ("cores", "says", "most"), [([0, 1], "at most 2", 2), ([], "cannot pin", 1)], ids=["two cores", "unknown cores"]
)
def test_more_parallel_clusters_than_cores_are_refused(
    cores: list[int], says: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator_load, "cores", lambda: cores)
    with pytest.raises(InvalidField, match=says):
        asked(SWEEP, parallel_clusters=3)
    assert asked(SWEEP, parallel_clusters=most).parallel_clusters == most


def test_a_budget_ends_a_sweep_and_a_larger_one_continues_it(fake: Any, address: str) -> None:
    with pytest.raises(BudgetSpent):
        carry_out(asked(SWEEP, store=address, budget={"hours": 0.01}))
    assert latest(address).state is RunState.STOPPED
    assert saved(address) == ()
    finished, session = carry_out(asked(SWEEP, store=address, budget={"hours": 1}))
    assert (len(finished), session.pids) == (3, [])


def test_the_price_table_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    table = tmp_path / "price_table.yaml"
    table.write_text("currency: USD\nworker_hour: {gpu: 2.5}\n")
    monkeypatch.setenv(price_table.VARIABLE, str(table))
    sweep = {**SWEEP, "cluster": {"kind": "slurm", "partition": "gpu"}}
    request = asked(sweep, store=address, budget={"money": 10})
    assert request.budget is not None
    assert request.budget.prices.of(request.sweep.cluster) == 2.5
    with pytest.raises(InvalidField, match="cpu has no price"):
        asked({**SWEEP, "cluster": {"kind": "slurm", "partition": "cpu"}}, store=address, budget={"money": 10})
    table.write_text("worker_hour: [")
    with pytest.raises(InvalidField, match=price_table.VARIABLE):
        asked(sweep, store=address, budget={"money": 10})
    monkeypatch.delenv(price_table.VARIABLE)
    assert price_table.load().of(request.sweep.cluster) is None


@pytest.mark.thorough
def test_a_trial_keeps_the_price_of_its_workers(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("currency: USD\nworker_hour: {gpu: 2.5}\n")
    monkeypatch.setenv(price_table.VARIABLE, str(table))
    for partition, price in (("gpu", {"worker_hour": 2.5, "currency": "USD"}), ("cpu", None)):
        sweep = {**SWEEP, "cluster": {"kind": "slurm", "partition": partition}}
        finished, _ = carry_out(asked(sweep, store=address))
        assert [trial.facts.get("price") for trial in finished] == [price] * 3


def test_a_request_can_be_sent_to_another_process(tmp_path: Path, address: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def run(client, *, items: int = 3):\n    client.gather(client.map(abs, range(items)))\n")
    sweep = {"workload": f"{path}:run", "axes": {"workers": [1, 2]}}
    request = asked(sweep, store=address, refine=3, verify=True, budget={"hours": 1})
    again = pickle.loads(pickle.dumps(request))
    assert again == request
    assert again.workload.run.__name__ == "run"


def test_a_report_that_could_not_be_written_is_not_named_in_the_artifact(
    fake: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Publication] = []
    runner = Failing("report", StoreError("the disk is full"))
    monkeypatch.setattr(runner, "publish", lambda make: published.append(make()))
    path = tmp_path / "report.html"
    path.write_text("that of yesterday")
    with pytest.raises(StoreError, match="the disk is full"):
        run_sweep({**SWEEP, "store": address, "report": str(path)}, runner)
    assert path.name not in published[-1].markdown


class FullDisk(Runner):
    """A runner whose drivers can write at most 4 KiB per file, as on a nearly full disk."""

    def do(self, step: RunStep[Any], *arguments: Any) -> Any:
        result = super().do(step, *arguments)
        if step.name == "provision":
            for pid in arguments[0].pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, 4096))
        return result


def test_a_run_ended_by_a_full_disk_is_finished_by_the_same_command(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # truncated bytecode would stay behind and break later tests
    request = asked({**SWEEP, "params": {"items": 2000}}, store=address)
    with pytest.raises(CaptureError, match="could not be written") as caught:
        carry_out(request, runner=FullDisk())
    assert "free space" in caught.value.next_step
    assert "too large" in caught.value.cause
    assert saved(address) == ()
    carry_out(request)
    assert [trial.state for trial in saved(address)] == [TrialState.VALID] * 3


def test_a_folder_of_a_driver_that_cannot_be_created_raises_store_error(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="raw records"):
        carry_out(asked(SWEEP, store=address))


def test_a_run_is_not_resumed_with_changed_code(fake: Any, address: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("def run(client, items: int = 1):\n    pass\n")
    sweep = {**SWEEP, "workload": f"{job}:run"}

    def attempt() -> tuple[str, list[str]]:
        said: list[str] = []
        fake.script = {len(fake.begun) + 1: InvalidField("a", 1, "b")}
        with pytest.raises(InvalidField):
            run_sweep({**sweep, "store": address}, Runner(lambda progress: said.append(progress.text)))
        return latest(address).id, [text for text in said if "is not continued" in text]

    first, said = attempt()
    assert said == []
    assert attempt() == (first, [])
    job.write_text(job.read_text() + "# changed")
    second, said = attempt()
    assert second != first
    assert [text.split(":")[0] for text in said] == [f"Run {first} is not continued"]
    with Store.open(address) as store:
        codes = [run.facts["code"] for run in store.runs()]
    assert len(set(codes)) == 2
