from __future__ import annotations

import random
from uuid import UUID

import pytest
from support.findings import observed, only
from support.small_cluster import Cluster, Graph, Task, find

from scalescope.model.finding import Severity

SIZES = [(8, 1), (4, 4), (40, 1), (100, 2)]


def wide(count, seconds=1.0, name="load", needs=(), **more):
    return [Task(seconds, name, needs, **more) for _ in range(count)]


# ------------------------------------------------------------------ healthy


@pytest.mark.parametrize(("workers", "threads"), SIZES)
def test_a_short_summary_at_the_end_is_healthy(workers, threads):
    count = 10 * workers * threads
    tasks = [*wide(count), Task(0.5, "sum", tuple(range(count)))]
    assert not find(Cluster(workers, threads).run(tasks))


def test_narrow_work_beside_a_wide_stage_or_in_a_narrow_graph_is_no_narrow_stage():
    assert not find(Cluster(8).run([Task(20.0, "index"), *wide(7 * 20)]))
    tasks = [*wide(3), *[Task(1.0, "clean", (i,)) for i in range(3)]]
    assert "narrow-stage" not in find(Cluster(30).run(tasks))


def test_a_chain_of_tasks_is_no_narrow_stage():
    tasks = wide(16)
    for _ in range(30):
        tasks.append(Task(1.0, "step", (len(tasks) - 1,)))
    assert "narrow-stage" not in find(Cluster(8).run(tasks))


@pytest.mark.parametrize(("fan_in", "named"), [(2, False), (8, False), (64, True)])
def test_a_tree_of_one_function_is_narrow_if_each_task_combines_many(fan_in, named):
    tasks = wide(64, 1.0, "merge")
    level = list(range(64))
    while len(level) > 1:
        parts = [level[i : i + fan_in] for i in range(0, len(level), fan_in)]
        tasks += [Task(0.1 * len(part), "merge", tuple(part)) for part in parts]
        level = list(range(len(tasks) - len(parts), len(tasks)))
    assert ("narrow-stage" in find(Cluster(16).run(tasks))) is named


def test_tasks_sent_one_by_one_are_awaited_in_loop_and_no_narrow_stage():
    tasks = wide(16) + [Task(1.0, "fit", graph=1 + i) for i in range(40)]
    graphs = [Graph(), *[Graph(0.001, after=i) for i in range(40)]]
    found = find(Cluster(8).run(tasks, graphs))
    assert "results-awaited-in-loop" in found
    assert "narrow-stage" not in found


@pytest.mark.parametrize("key", [f"load-{'1f' * 16}", f"('load-{'1f' * 16}', 7)", f"load-{UUID(int=7)}"])
def test_one_long_task_of_many_is_a_straggler_named_without_a_long_token(golden, key):
    run = Cluster(32).run([Task(30.0 if i == 7 else 1.0, "load") for i in range(64)])
    keys = [key if each == "load-7" else each for each in run.tables["tasks"]["key"]]
    golden(only(find(observed(run.trial, {**run.tables, "tasks": {**run.tables["tasks"], "key": keys}})), "straggler"))


def test_a_straggler_is_named_by_its_call(golden):
    told = (40.0, "longest", {"key": "load-7", "call": "load(7)"})
    run = Cluster(32, events=[told]).run([Task(30.0 if i == 7 else 1.0, "load") for i in range(64)])
    golden(only(find(run), "straggler"))


# ------------------------------------------------------------------ what breaks


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("narrow", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_tasks_after_many_are_found_as_narrow_stage(workers, threads, narrow, seed, golden_once):
    rng = random.Random(seed)
    count = workers * threads * rng.choice([2, 3])
    tasks = wide(count) + wide(narrow, rng.uniform(2.0, 9.0), "train", tuple(range(count)))
    finding = golden_once(only(find(Cluster(workers, threads, gap_s=0.001).run(tasks)), "narrow-stage"))
    assert finding.severity is (
        Severity.HIGH if finding.lost_s > 0.3 * _whole(tasks, workers, threads) else Severity.MEDIUM
    )


def _whole(tasks, workers, threads):
    waves = sum(t.name == "load" for t in tasks) / (workers * threads)
    return workers * threads * (waves + max(t.seconds for t in tasks))


def test_time_lost_to_a_narrow_stage_is_that_of_the_idle_threads(golden):
    tasks = [*wide(16), *wide(2, 6.0, "train", tuple(range(16)))]
    assert golden(find(Cluster(8).run(tasks))["narrow-stage"]).lost_s == pytest.approx(6 * 6.0)


def test_one_task_before_many_is_found_as_narrow_stage(golden):
    tasks = [Task(5.0, "read"), *wide(16, needs=(0,))]
    assert golden(find(Cluster(8).run(tasks))["narrow-stage"]).lost_s == pytest.approx(7 * 5.0)


def test_one_task_in_each_round_is_found_as_narrow_stage(golden):
    tasks = []
    for _ in range(6):
        last = (len(tasks) - 1,) if tasks else ()
        first = len(tasks)
        tasks += wide(8, name="gradient", needs=last)
        tasks.append(Task(2.0, "update", tuple(range(first, first + 8))))
    assert golden(find(Cluster(8).run(tasks))["narrow-stage"]).lost_s == pytest.approx(6 * 7 * 2.0)


def test_uneven_tasks_of_a_narrow_stage_do_not_add_to_its_lost_time():
    """One of two tasks takes five times as long; more tasks of that kind would wait for it as well."""
    tasks = [*wide(16), *[Task(seconds, "train", tuple(range(16))) for seconds in (2.0, 10.0)]]
    finding = find(Cluster(8).run(tasks))["narrow-stage"]
    assert finding.lost_s == pytest.approx(6 * 10.0)


def test_two_narrow_stages_at_once_share_the_lost_time(golden):
    tasks = wide(16)
    needs = tuple(range(16))
    tasks += [Task(4.0, "train", needs), Task(4.0, "plot", needs)]
    assert golden(find(Cluster(8).run(tasks))["narrow-stage"]).lost_s == pytest.approx(6 * 4.0)
