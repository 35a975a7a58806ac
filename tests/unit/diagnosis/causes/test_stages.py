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


@pytest.mark.parametrize(
    ("workers", "tasks"),
    [
        pytest.param(8, [Task(20.0, "index"), *wide(7 * 20)], id="beside a wide stage"),
        pytest.param(30, [*wide(3), *[Task(1.0, "clean", (i,)) for i in range(3)]], id="in a narrow graph"),
        pytest.param(8, [*wide(16), *[Task(1.0, "step", (15 + i,)) for i in range(30)]], id="a chain"),
    ],
)
def test_few_tasks_that_hold_up_no_thread_are_not_found_as_narrow_stage(workers, tasks):
    assert "narrow-stage" not in find(Cluster(workers).run(tasks))


@pytest.mark.parametrize(("fan_in", "named"), [(2, False), (8, False), (64, True)])
def test_a_reduction_tree_is_found_as_narrow_stage_only_if_each_task_combines_many(fan_in, named):
    tasks = wide(64, 1.0, "merge")
    level = list(range(64))
    while len(level) > 1:
        parts = [level[i : i + fan_in] for i in range(0, len(level), fan_in)]
        tasks += [Task(0.1 * len(part), "merge", tuple(part)) for part in parts]
        level = list(range(len(tasks) - len(parts), len(tasks)))
    assert ("narrow-stage" in find(Cluster(16).run(tasks))) is named


def test_tasks_sent_one_by_one_are_found_as_results_awaited_in_loop_and_not_as_narrow_stage():
    tasks = wide(16) + [Task(1.0, "fit", graph=1 + i) for i in range(40)]
    graphs = [Graph(), *[Graph(0.001, after=i) for i in range(40)]]
    found = find(Cluster(8).run(tasks, graphs))
    assert "results-awaited-in-loop" in found
    assert "narrow-stage" not in found


CALLED = {"key": "load-7", "call": "load(7)"}
KEYS = [f"load-{'1f' * 16}", f"('load-{'1f' * 16}', 7)", f"load-{UUID(int=7)}"]


@pytest.mark.parametrize(
    ("key", "told"), [*((key, []) for key in KEYS), ("load-7", [{"key": "load-7", "call": "load(7)"}])]
)
def test_a_straggler_is_named_by_its_call_or_by_its_key_without_a_long_token(golden, key, told):
    events = [(40.0, "longest", each) for each in told]
    run = Cluster(32, events=events).run([Task(30.0 if i == 7 else 1.0, "load") for i in range(64)])
    keys = [key if each == "load-7" else each for each in run.tables["tasks"]["key"]]
    golden(only(find(observed(run.trial, {**run.tables, "tasks": {**run.tables["tasks"], "key": keys}})), "straggler"))


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


def in_rounds(rounds):
    tasks = []
    for i in range(rounds):
        tasks += wide(8, name="gradient", needs=(9 * i - 1,) if i else ())
        tasks.append(Task(2.0, "update", tuple(range(9 * i, 9 * i + 8))))
    return tasks


ALL = tuple(range(16))
NARROW = {
    "two tasks after many": ([*wide(16), *wide(2, 6.0, "train", ALL)], 6 * 6.0),
    "one task before many": ([Task(5.0, "read"), *wide(16, needs=(0,))], 7 * 5.0),
    "one task in each round": (in_rounds(6), 6 * 7 * 2.0),
    # more tasks of that kind would wait for the longer one as well
    "two uneven tasks": ([*wide(16), Task(2.0, "train", ALL), Task(10.0, "train", ALL)], 6 * 10.0),
    "two stages at once": ([*wide(16), Task(4.0, "train", ALL), Task(4.0, "plot", ALL)], 6 * 4.0),
}


@pytest.mark.parametrize("case", NARROW)
def test_time_lost_to_a_narrow_stage_is_that_of_the_idle_threads(case, golden):
    tasks, lost_s = NARROW[case]
    assert golden(find(Cluster(8).run(tasks))["narrow-stage"]).lost_s == pytest.approx(lost_s)
