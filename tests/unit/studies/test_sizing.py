"""A cluster as a value: searches from simulated runs, memory, interpreter locks, time limits, and code that is run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st
from support.findings import observed

import scalescope
from scalescope.analysis.inside_tasks import Stack
from scalescope.analysis.task_lengths import clock, too_long
from scalescope.cli import main as cli
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial
from scalescope.run.job_time import tasks_longer_than_jobs
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store
from scalescope.studies.prediction.judge import PredictedSize
from scalescope.studies.prediction.plan import _most
from scalescope.studies.report import export
from scalescope.studies.report.html import render_study
from scalescope.studies.running import StudyResult, run_study
from scalescope.studies.sizing import as_code, contention, plan
from scalescope.studies.sizing.choice import (
    Configuration,
    SecondGroup,
    Sizing,
    Wanted,
    choose,
    configuration,
    contenders,
    surer,
)
from scalescope.studies.sizing.memory import MeasuredMemory
from scalescope.studies.sizing.second_group import second_group

SWEEP: dict[str, Any] = {"workload": "futures-map", "params": {"items": 12, "seconds": 1}}
GROUP = SecondGroup("merge", tasks=1, workers=1, memory_mb=600, others_mb=300)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('sizing') / 'runs.db'}"


@pytest.fixture(scope="module")
def measured(store: str) -> str:
    return run_sweep({**SWEEP, "axes": {"workers": [1, 2]}, "store": store}).run_id


@pytest.fixture(scope="module")
def sized(store: str, measured: str) -> StudyResult:
    found: StudyResult = scalescope.size(measured, cores=12, threads="1,2", deadline="5s", store=store)
    return found


def made(workers: int, seconds: float, threads: int = 1, memory_mb: int = 400, **more: Any) -> Configuration:
    hours = workers * threads * seconds / 3600
    return Configuration(workers, threads, memory_mb, seconds, 0.9 * seconds, 1.1 * seconds, hours, **more)


def test_sizing_a_run_finds_the_fastest_the_chosen_and_the_smallest_cluster_for_a_deadline(sized: StudyResult) -> None:
    found = Sizing.from_mapping(sized.result)
    assert found.best is not None
    assert (found.best.cores, found.best.predicted_s) == (12, pytest.approx(1.0, rel=0.1))
    assert found.smallest is not None
    assert found.smallest.cores == 3  # of 12 seconds in 5
    assert found.chosen is not None
    assert found.chosen.high_s <= 5
    assert not sized.alarm
    assert {each.threads for each in found.configurations} == {1, 2}


def test_the_answer_shows_code_for_the_chosen_cluster_in_text_markdown_and_html(sized: StudyResult) -> None:
    assert "LocalCluster(" in sized.code()
    assert "LocalCluster(" in export.to_markdown(sized.study, sized.runs)
    assert "LocalCluster(" in render_study(sized.study, sized.runs)
    assert "SLURMCluster(" in sized.code("slurm")
    found, table = Sizing.from_mapping(sized.result), export.to_markdown(sized.study, sized.runs)
    assert found.chosen is not None
    assert f"chosen, smallest; in time in {found.chosen.in_time(5.0)} of runs" in table
    assert {"chosen", "unsure"} <= set(sized.result)
    with pytest.raises(InvalidField):
        sized.code("other")


@pytest.mark.thorough
def test_the_command_prints_code_alone(store: str, measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["size", measured, "--cores", "8", "--threads", "1", "--as", "sweep", "--store", store]
    with pytest.raises(SystemExit) as ended:
        cli.main(asked)
    assert ended.value.code == 0
    again = yaml.safe_load(capsys.readouterr().out)
    done = run_sweep({**again, "store": store})
    assert done.run.trials[0].point.workers == 6  # 12 items in two waves


@pytest.mark.thorough
def test_a_deadline_that_no_cluster_keeps_is_an_alarm_and_gives_no_code(store: str, measured: str) -> None:
    done = run_study("size", {"run": measured, "cores": 2, "threads": "1", "deadline": "5s", "store": store})
    assert done.alarm
    with pytest.raises(InvalidField):
        done.code()


@pytest.mark.thorough
def test_a_measurement_that_would_improve_the_choice_is_made_only_with_consent(store: str) -> None:
    run = run_sweep({**SWEEP, "axes": {"workers": [2]}, "store": store}).run_id
    asked = {"run": run, "cores": 32, "threads": "1", "store": store}
    assert Sizing.from_mapping(run_study("size", asked).result).measurements
    done = run_study("size", {**asked, "measure": True})
    assert [len(each.trials) for each in done.runs if each.sweep.workload == "futures-map"] == [1]
    assert not Sizing.from_mapping(done.result).measurements


@pytest.mark.thorough
def test_sizing_a_workload_instead_of_a_run_measures_it_first(store: str) -> None:
    given = {**SWEEP, "cluster": "simulated", "axes": {"workers": [1, 2]}, "cores": 16, "threads": "1", "store": store}
    found = Sizing.from_mapping(run_study("size", given).result)
    assert found.best is not None
    assert found.best.workers == 12


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (Wanted(64), (32, 1)),
        (Wanted(64, cheapest=True), (4, 1)),
        (Wanted(64, deadline_s=12.0), (16, 1)),
        (Wanted(64, deadline_s=10.7), (16, 1)),  # kept in 8 of 10 runs
        (Wanted(64, deadline_s=10.3), (32, 1)),
        (Wanted(64, budget=0.05), (16, 1)),
        (Wanted(64, memory=300 * 2**20), (16, 1)),
        (Wanted(64, together=7000 * 2**20), (16, 1)),
    ],
)
def test_deadline_budget_and_memory_decide_which_cluster_is_chosen(wanted: Wanted, chosen: tuple[int, int]) -> None:
    found = choose([made(4, 36.0, memory_mb=200), made(16, 10.0, memory_mb=300), made(32, 6.0)], wanted)
    assert found.chosen is not None
    assert (found.chosen.workers, found.chosen.threads) == chosen


@pytest.mark.parametrize(
    ("spread", "count", "shapes"),
    [
        (0.0, 3, [16]),
        (0.02, 3, [16]),
        (0.1, 3, [16, 32]),  # 32 workers may be more than 5 % faster
        (0.1, 60, [16]),
        (0.3, 3, [4, 16, 32]),
        (None, 1, [16, 32]),
    ],
)
def test_clusters_that_may_be_the_best_are_simulated_again(spread: float | None, count: int, shapes: list[int]) -> None:
    found = [made(1, 100.0), made(4, 12.0), made(16, 10.0), made(32, 9.9)]
    times = [1.0] if spread is None else [(1 + spread) ** (each - 1) for each in range(3)] * (count // 3)
    draws = {(each.workers, 1): [each.predicted_s * time for time in times] for each in found}
    assert [each.workers for each in contenders(found, Wanted(64), draws)] == shapes
    measured = [replace(each, measured_s=each.predicted_s) for each in found]
    assert [each.workers for each in contenders(measured, Wanted(64), draws)] == [16]


def test_clusters_close_to_the_deadline_are_simulated_again_with_the_next_that_surely_keeps_it() -> None:
    found = [made(4, 30.0), made(10, 10.8), made(11, 10.1), made(32, 9.7)]
    draws = {(each.workers, 1): [each.predicted_s * time for time in (0.9, 1.0, 1.1)] for each in found}
    wanted = Wanted(64, deadline_s=11.0)
    assert [each.workers for each in contenders(found, wanted, draws)] == [10, 11, 32]
    assert [each.workers for each in contenders(found, replace(wanted, memory=1.0), draws)] == []


@pytest.mark.parametrize("limit_s", [20.0, pytest.param(-1.0, marks=pytest.mark.thorough)])
def test_close_clusters_are_simulated_until_the_time_is_spent(
    limit_s: float, store: str, measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "contenders", lambda found, *_: found)
    monkeypatch.setattr(plan, "MOST_DRAWS", 4)
    monkeypatch.setattr(plan, "CLOSER_S", limit_s)
    asked = {"run": measured, "cores": 2, "threads": "1", "store": store, "fresh": True}
    draws = Counter(trial.point.workers for trial in run_study("size", asked).runs[1].trials)
    assert draws == dict.fromkeys((1, 2), 3 if limit_s < 0 else 4)


def test_the_predicted_time_of_a_measured_size_is_the_measured_time() -> None:
    predicted = PredictedSize(4, 6.0, 5.0, 8.0, 0.9, measured_s=9.0, money=2.0)
    found = configuration(predicted, 1, 0.0, money_factor=1.0, measured=True)
    assert (found.predicted_s, found.low_s, found.high_s, found.money) == (9.0, 7.5, 12.0, 3.0)
    assert configuration(replace(predicted, measured_s=None), 1, 0.0, money_factor=1.0, measured=True).money == 2.0


def test_of_equally_fast_clusters_the_one_with_measured_threads_is_best() -> None:
    found = choose([made(8, 10.0, 2, measured_threads=False), made(16, 10.0), made(64, 9.9)], Wanted(64))
    assert found.best is not None
    assert found.best.workers == 16


def test_a_measurement_is_proposed_only_if_it_could_change_the_choice() -> None:
    unmeasured = choose([made(4, 10.0, 4, measured_threads=False), made(16, 20.0)], Wanted(16))
    assert [(each.workers, each.threads) for each in surer(unmeasured, sizes=[2, 4], threads=1)] == [(1, 4)]
    assert not surer(choose([made(16, 20.0)], Wanted(16)), sizes=[2, 4], threads=1)
    assert [each.workers for each in surer(choose([made(16, 20.0)], Wanted(16)), sizes=[4], threads=1)] == [8]


# ------------------------------------------------------------------ memory and interpreter locks


def test_the_memory_limit_grows_with_threads_and_results() -> None:
    known = MeasuredMemory(process=100e6, per_thread=200e6)
    assert known.limit(0, 1) < known.limit(0, 4) < known.limit(5e9, 4)
    assert known.limit(6e9, 1, there=0) >= 10e9  # results alone may take 60 % of a limit


def test_a_memory_limit_has_spare_room_if_there_is_memory_and_is_never_below_the_need() -> None:
    known = MeasuredMemory(process=100e6, per_thread=200e6)
    needed = known.limit(5e9, 1, there=0)
    assert 1.2 * needed < known.limit(5e9, 1) <= 1.26 * needed
    assert needed <= known.limit(5e9, 1, there=1.1 * needed) <= 1.1 * needed
    assert known.limit(5e9, 1, there=0.5 * needed) == needed
    assert MeasuredMemory().limit(0, 1) == 0.0


def test_held_memory_is_raised_by_the_spread_of_few_simulated_draws() -> None:
    assert _most({1: [5e9, 5e9, 5e9], 2: [2e9], 4: [0.0, 0.0]}) == {1: 5e9, 2: 2e9, 4: 0.0}
    few = _most({1: [5e9, 5e9], 2: [4e9, 6e9]})
    assert few == {1: pytest.approx(7.1e9, rel=0.1), 2: pytest.approx(7.5e9, rel=0.1)}
    assert _most({1: [5e9] * 24, 2: [4e9, 6e9]})[1] < 6e9  # many draws tell their own spread


def test_a_number_of_threads_that_was_not_measured_widens_the_interval() -> None:
    size = PredictedSize(4, 10.0, 8.0, 12.5, 0.9)
    sure, unsure = (configuration(size, 2, 0.0, money_factor=1.0, measured=each) for each in (True, False))
    assert (sure.low_s, sure.high_s) == (pytest.approx(8.0), pytest.approx(12.5))
    assert 7.0 < unsure.low_s < 8.0
    assert 12.5 < unsure.high_s < 1.2 * 12.5


def test_threads_of_a_simulated_cluster_count_as_measured() -> None:
    assert [contention.Contention(1, virtual=each).sure(2) for each in (True, False)] == [True, False]


@hypothesis.given(st.floats(0.01, 1.0), st.integers(2, 16))
def test_contention_for_the_interpreter_lock_lengthens_tasks_within_known_bounds(share: float, threads: int) -> None:
    found = contention.longer(share, threads)
    assert max(1.0, share * threads) - 1e-9 <= found <= 1 + share * (threads - 1) + 1e-9
    assert contention.longer(0.0, threads) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_time_with_the_interpreter_lock_is_found_from_a_profile_of_several_threads(share: float) -> None:
    seen = 1 - (1 - share) / contention.longer(share, 4)
    assert contention._share_from_profile(seen, 4) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("stack", "held"),
    [
        (("job.py:7 work",), True),
        (("job.py:7 work", "sum()"), True),
        (("job.py:7 work", "json.loads()"), True),
        (("job.py:3 load", "time.sleep()"), False),
        (("job.py:8 work", "numpy._core._methods._sum", "umr_sum()"), False),
    ],
)
def test_whether_a_thread_holds_the_interpreter_lock_is_judged_by_its_innermost_function(
    stack: tuple[str, ...], held: bool
) -> None:
    assert contention.holds(Stack(stack, 1)) is held


def test_a_narrow_stage_with_large_inputs_gets_a_group_of_larger_workers(
    records: Callable[..., dict[str, Any]], trial: Callable[..., Trial]
) -> None:
    tasks: list[dict[str, Any]] = [
        {"worker": f"w{i}", "start": 0, "stop": 1, "nbytes": 100_000_000, "key": f"load-{i}"} for i in range(8)
    ]
    tasks.append(
        {"worker": "w0", "start": 1, "stop": 2, "prefix": "merge", "group": "merge", "nbytes": 8, "runnable": 1}
    )
    tables = records(tasks, {f"w{i}": {} for i in range(8)})
    tables["dependencies"] = {"task": [8] * 8, "needs": list(range(8))}
    found = second_group(
        observed(trial(8, 9, 8), tables), MeasuredMemory(1e6, 1e6), made(8, 2.0, memory_mb=1500), math.inf
    )
    assert found is not None
    assert (found.prefix, found.workers) == ("merge", 1)
    assert found.others_mb < 0.6 * found.memory_mb


# ------------------------------------------------------------------ tasks and time limits


def test_a_task_that_its_job_ends_too_early_is_named_with_limits_and_sizes_that_fit() -> None:
    found = too_long({"fit": 4 * 3600.0}, "walltime", 5 * 3600.0, 40 * 3600.0)
    assert found is not None
    assert found.lost == pytest.approx(0.2, abs=0.01)
    assert "second" in found.text
    assert too_long({"fit": 4 * 3600.0}, "walltime", found.fitting_s, 40 * 3600.0) is None
    assert too_long({"fit": 4 * 3600.0 / found.parts}, "walltime", 5 * 3600.0, 40 * 3600.0) is None


@pytest.mark.parametrize(("task_h", "limit_h", "whole_h"), [(4, 5, 4.5), (0.1, 5, 40), (4.9, 5, 40)])
def test_tasks_that_end_within_the_time_limit_of_their_job_are_not_named(
    task_h: float, limit_h: float, whole_h: float
) -> None:
    assert too_long({"fit": task_h * 3600}, "walltime", limit_h * 3600.0, whole_h * 3600) is None


def test_all_work_is_lost_if_a_task_is_longer_than_its_job() -> None:
    found = too_long({"fit": 7200.0}, "walltime", 3600.0, 36_000.0)
    assert found is not None
    assert found.lost == 1
    assert found.fitting_s > 7200


def test_durations_are_written_in_the_format_that_schedulers_read() -> None:
    assert [clock(each) for each in (61.2, 3601, 90_000)] == ["00:01:02", "01:01:00", "25:00:00"]


def test_a_walltime_too_short_for_tasks_of_an_earlier_run_is_reported_before_the_sweep(
    store: str, measured: str
) -> None:
    sweep = Sweep.from_mapping({**SWEEP, "axes": {"workers": [1]}})
    with Store.open(store) as opened:
        run_sweep({**SWEEP, "params": {"items": 8, "seconds": 100}, "axes": {"workers": [1]}, "store": store})
        short = cluster_spec({"kind": "slurm", "walltime": "00:03:40"})
        assert "walltime" in tasks_longer_than_jobs(sweep, short, [Point(1)], opened)
        long = cluster_spec({"kind": "slurm", "walltime": "10:00:00"})
        assert not tasks_longer_than_jobs(sweep, long, [Point(1)], opened)
        assert not tasks_longer_than_jobs(sweep, cluster_spec("local"), [Point(1)], opened)
        assert not tasks_longer_than_jobs(Sweep.from_mapping({**SWEEP, "workload": "bag-map"}), short, [], opened)


# ------------------------------------------------------------------ code

RUNS = """
import json, sys
from distributed import default_client

def run(code):
    exec(compile(code, "sized.py", "exec"), {"__name__": "__main__"})
    client = default_client()
    client.wait_for_workers(2)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    print(json.dumps(sorted([each["nthreads"], each["memory_limit"] // 2**20, each["resources"]] for each in workers)))
    client.cluster.close()
    client.close()

if __name__ == "__main__":
    for code in json.loads(sys.argv[1]):
        run(code)
"""


STARTS = """
import json

if __name__ == "__main__":
    with task_runner:
        workers = task_runner.client.scheduler_info(n_workers=-1)["workers"].values()
        print(json.dumps([[each["nthreads"], each["memory_limit"] // 2**20] for each in workers]))
"""


def test_the_code_generated_for_one_machine_runs_unchanged(tmp_path: Path) -> None:
    chosen = made(1, 10.0, 2)
    codes = [as_code._local(made(2, 10.0)), as_code._client(made(2, 10.0)), as_code._groups(chosen, GROUP)]
    (tmp_path / "run.py").write_text(RUNS)
    command = [sys.executable, "run.py", json.dumps(codes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert not done.returncode, done.stderr
    local, client, groups = map(json.loads, done.stdout.splitlines())
    assert local == client == [[1, 400, {}]] * 2
    assert groups == [[1, 600, {as_code.RESOURCE: 1}], [2, 300, {}]]


def test_the_code_generated_for_prefect_runs_unchanged(tmp_path: Path) -> None:
    """The task runner starts its cluster, as it does for a flow."""
    pytest.importorskip("prefect_dask")
    (tmp_path / "flow.py").write_text(as_code._prefect(made(2, 10.0)) + STARTS)
    done = subprocess.run([sys.executable, "flow.py"], capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, 400]] * 2


@pytest.mark.parametrize("group", [None, GROUP])
def test_code_for_slurm_and_kubernetes_has_the_options_of_the_recorded_cluster(group: SecondGroup | None) -> None:
    spec = SlurmSpec(partition="gpu", account="team", qos="high", prologue=("module load cuda",))
    slurm = as_code._slurm(made(4, 10.0), group, spec, "02:00:00")
    compile(slurm, "slurm.py", "exec")
    for text in ('queue="gpu"', 'account="team"', "--qos=high", "module load cuda", 'walltime="02:00:00"', "jobs=4"):
        assert text in slurm
    pods = as_code._kubernetes(made(4, 10.0, 2), group, KubernetesSpec(image="team/dask:1", namespace="team"))
    compile(pods, "pods.py", "exec")
    assert 'image="team/dask:1"' in pods
    assert ("add_worker_group" in pods) is (group is not None)
