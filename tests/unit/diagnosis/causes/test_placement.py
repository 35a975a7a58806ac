from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import only
from support.small_cluster import Cluster, Task, find, standing

from scalescope.model.finding import Severity
from scalescope.model.records import SCATTERED
from scalescope.model.standstill import StandingTasks, Standstill

SIZES = [2, 4, 10, 40, 200]

# ------------------------------------------------------------------ worker restriction


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("allowed", [1, 2])
@pytest.mark.parametrize("seconds", [0.1, 5.0])
def test_tasks_restricted_to_few_workers_are_found_as_worker_restriction(workers, allowed, seconds, golden_once):
    if allowed >= workers:
        pytest.skip("no restriction")
    on = tuple(range(allowed))
    events = [(0.0, "restriction", {"prefix": "inc", "workers": ["w0"], "hosts": [], "resources": {}})]
    finding = only(
        find(Cluster(workers, events=events).run([Task(seconds, "inc", on=on)] * 4 * workers)), "worker-restriction"
    )
    assert finding.severity is Severity.HIGH
    golden_once(finding)


AWAY = StandingTasks("train", 12, False, "", "", "", "no worker may run it: it asks for resources GPU=1", 0)
STOPPED = Standstill(9.0, 4, 0, 12, 0, 0, (AWAY,), enough_s=5.0)


@pytest.mark.parametrize("asked", ["resources GPU=1", "workers tcp://10.0.0.9:1", ""])
def test_tasks_that_no_worker_may_run_are_found_as_worker_restriction(asked, golden):
    problem = f"no worker may run it{f': it asks for {asked}' if asked else ''}"
    stopped = replace(STOPPED, groups=(replace(AWAY, problem=problem),))
    assert golden(only(find(standing(Cluster(4), stopped)), "worker-restriction")).severity is Severity.HIGH


@pytest.mark.parametrize(
    "stopped",
    [
        replace(STOPPED, still_s=4.0),
        replace(STOPPED, groups=(replace(AWAY, problem=""),)),
        replace(STOPPED, computing=1),  # others still work
    ],
)
def test_a_stopped_trial_whose_tasks_could_run_is_not_found_as_worker_restriction(stopped):
    assert not find(standing(Cluster(4), stopped))


def test_tasks_restricted_to_few_workers_are_found_beside_unrestricted_ones(golden):
    tasks = [Task(1.0) for _ in range(100)] + [Task(1.0, "write", on=(3,)) for _ in range(40)]
    golden(find(Cluster(10).run(tasks))["worker-restriction"])
    tasks = [Task(1.0, on=(0 if i % 2 else i % 10,)) for i in range(200)]
    assert list(find(Cluster(10).run(tasks))) == ["worker-restriction"]


def test_restrictions_that_cost_nothing_are_healthy():
    everywhere = [Task(1.0, on=(i % 10,)) for i in range(100)]
    assert not find(Cluster(10).run(everywhere))
    in_time = [Task(1.0, "write", on=(3,)) for _ in range(9)] + [Task(1.0) for _ in range(90)]
    assert not find(Cluster(10).run(in_time))
    all_of_them = [Task(1.0, on=tuple(range(10))) for _ in range(100)]
    assert not find(Cluster(10).run(all_of_them))


@pytest.mark.parametrize(("others", "severity"), [(0, Severity.HIGH), (40, Severity.INFO)])
def test_tasks_limited_by_worker_resources_are_found_as_worker_restriction(others, severity, golden):
    """Each worker has four threads and one GPU; beside long work of others, such a limit is taken to be meant."""
    events = [(0.0, "restriction", {"prefix": "train", "workers": [], "hosts": [], "resources": {"GPU": 1}})]
    given = [(f"train-{i}", "train", i, i // 4, i // 4 + 1) for i in range(40)]
    given += [(f"fit-{i}", "fit", i, 10, 10 + others) for i in range(16 * bool(others))]
    rows = [
        {
            "key": key, "prefix": prefix, "group": prefix, "worker": f"tcp://10.0.0.{i % 4}:4000",
            "start": start + 1e-9, "stop": stop, "done": stop, "span": 1.0, "allowed": 4 * (prefix == "train"),
            "runnable": 0.0 if prefix == "train" else 10.0,
        }
        for key, prefix, i, start, stop in given
    ]  # fmt: skip
    finding = golden(find(Cluster(4, 4, events=events).observe(rows))["worker-restriction"])
    assert finding.severity is severity


def test_of_tasks_that_share_a_resource_those_that_hold_it_longest_are_named_in_the_remedy(golden):
    said = {"workers": [], "hosts": [], "resources": {"DISK": 1}}
    events = [(0.0, "restriction", {"prefix": prefix, **said}) for prefix in ("extract", "analyse")]
    given = [(f"extract-{i}", "extract", i, i // 2, i // 2 + 1.0) for i in range(8)]
    given += [(f"analyse-{i}", "analyse", i, 4 + i // 2 * 5.0, 9 + i // 2 * 5.0) for i in range(8)]
    rows = [
        {
            "key": key, "prefix": prefix, "group": prefix, "worker": f"tcp://10.0.0.{i % 2}:4000",
            "start": start + 1e-9, "stop": stop, "done": stop, "span": 1.0, "allowed": 2, "runnable": 0.0,
        }
        for key, prefix, i, start, stop in given
    ]  # fmt: skip
    finding = golden(find(Cluster(2, 2, events=events).observe(rows))["worker-restriction"])
    assert "`analyse` tasks hold the resources" in finding.remedy


# ------------------------------------------------------------------ late workers


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("late", [0.5, 0.9])
def test_workers_that_join_in_the_middle_are_found_as_late(workers, late, golden_once):
    count = min(workers - 1, round(late * workers))
    joined = {workers - 1 - i: 5.0 for i in range(count)}
    finding = golden_once(only(find(Cluster(workers, joined=joined).run([Task(1.0)] * 10 * workers)), "late-workers"))
    assert finding.lost_s == pytest.approx(5.0 * count, rel=0.01)


def test_late_workers_that_get_no_tasks_are_found(golden):
    """All tasks had been assigned to the first two before the others came, and stay there."""
    joined = dict.fromkeys(range(2, 10), 1.5)
    tasks = [Task(1.0, on=(i % 2,), pinned=False) for i in range(40)]
    findings = find(Cluster(10, joined=joined).run(tasks))
    assert next(iter(findings)) == "late-workers"
    assert "data-locality" not in findings
    golden(findings["late-workers"])


def test_workers_that_nobody_needed_or_that_replace_others_are_not_late():
    assert not find(Cluster(10, joined=dict.fromkeys(range(5, 10), 3.0)).run([Task(10.0)] * 5))
    assert not find(Cluster(10, joined=dict.fromkeys(range(5, 10), 0.2)).run([Task(1.0)] * 100))
    run = Cluster(5, joined={4: 5.0}, left={3: 4.0}, asked=4)
    assert "late-workers" not in find(run.run([Task(1.0, on=(0, 1, 2, 4), pinned=False)] * 60))


# ------------------------------------------------------------------ data locality


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize(("seconds", "joined"), [(0.2, {}), (5.0, {}), (5.0, {0: 0.05})])
def test_tasks_that_stay_at_one_shared_input_are_found_as_data_locality(workers, seconds, joined, golden_once):
    tasks = [Task(0.1, "load", on=(1,), pinned=False, nbytes=10**9)]
    tasks += [Task(seconds, "use", (0,), on=(1,), pinned=False) for _ in range(4 * workers)]
    finding = golden_once(only(find(Cluster(workers, joined=joined).run(tasks)), "data-locality"))
    assert finding.severity is Severity.HIGH
    assert finding.confidence == 0.9


def test_tasks_that_stay_at_inputs_on_few_workers_are_found_as_data_locality(golden):
    tasks = [Task(0.1, "load", on=(i % 3,), pinned=False, nbytes=10**8) for i in range(30)]
    tasks += [Task(1.0, "use", (i % 30,), on=(i % 30 % 3,), pinned=False) for i in range(60)]
    golden(only(find(Cluster(20).run(tasks)), "data-locality"))


def test_for_inputs_that_are_slow_to_move_the_advice_is_to_make_them_smaller(golden):
    tasks = [Task(0.1, "load", on=(i % 3,), pinned=False, nbytes=3 * 10**9) for i in range(6)]
    tasks += [Task(1.0, "use", (i % 6,), on=(i % 6 % 3,), pinned=False) for i in range(60)]
    finding = golden(only(find(Cluster(20).run(tasks)), "data-locality"))
    assert "default-task-durations" not in finding.remedy


def test_uneven_work_at_evenly_spread_inputs_is_found_as_data_locality():
    tasks = [Task(0.1, "load", on=(i,), pinned=False, nbytes=10**8) for i in range(10)]
    tasks += [Task(1.0, "use", (i,), on=(i,), pinned=False) for i in range(10) for _ in range(2 + 6 * (i % 3))]
    finding = only(find(Cluster(10).run(tasks)), "data-locality")
    # four workers have 2 tasks, three have 8, and three 14: threads are idle while tasks wait elsewhere
    assert finding.lost_s == pytest.approx(6 * 4 + 3 * 7 + 6 + 3)


def test_data_locality_of_unrecorded_scattered_inputs_has_lower_confidence(golden):
    finding = golden(only(find(Cluster(10).run([Task(1.0, on=(2,), pinned=False)] * 40)), "data-locality"))
    assert finding.confidence == 0.6


@pytest.mark.parametrize(("copies", "found"), [(1, True), (10, False)])
def test_recorded_scattered_inputs_are_found_unless_every_worker_has_a_copy(copies, found, golden):
    """The inputs are on half of the workers; without the record that is too many to be noticed."""
    tasks = [Task(1.0, on=(i % 5,), pinned=False) for i in range(40)]
    assert not find(Cluster(10).run(tasks))
    told = [
        {"number": i, "nbytes": 10, "workers": copies, "first": [f"tcp://10.0.0.{i}:4000"], "rows": [*range(i, 40, 5)]}
        for i in range(5)
    ]
    findings = find(Cluster(10, events=[(0.0, SCATTERED, each) for each in told]).run(tasks))
    assert list(findings) == ["data-locality"] * found
    if found:
        assert findings["data-locality"].confidence == 0.9
        assert findings["data-locality"].lost_s == pytest.approx(5 * 7)
    golden(*findings.values())


def test_tasks_at_evenly_spread_inputs_or_pinned_to_a_worker_are_not_found_as_data_locality():
    tasks = [Task(1.0, "load", nbytes=10**8) for _ in range(100)]
    tasks += [Task(1.0, "use", (i,), on=(i % 10,), pinned=False) for i in range(100)]
    assert not find(Cluster(10).run(tasks))
    bound = [Task(0.1, "load", on=(1,), nbytes=10**9), *[Task(1.0, "use", (0,), on=(1,))] * 40]
    assert list(find(Cluster(10).run(bound))) == ["worker-restriction"]
