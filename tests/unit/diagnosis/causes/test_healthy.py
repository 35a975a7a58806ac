"""Healthy runs get no accusation, whatever their size and shape."""

from __future__ import annotations

import random

import pytest
from support.small_cluster import Cluster, Task, find

SIZES = [(1, 1), (2, 1), (4, 2), (10, 1), (30, 1), (100, 1)]


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("waves", [1, 3])
def test_equal_tasks_are_healthy(workers, threads, waves):
    assert not find(Cluster(workers, threads, gap_s=0.002).run([Task(1.0)] * workers * threads * waves))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("workers", "per_thread"), [(4, 20), (20, 10), (100, 6)])
def test_noisy_durations_are_healthy(workers, per_thread, seed):
    rng = random.Random(seed)
    tasks = [Task(rng.lognormvariate(0, 0.15)) for _ in range(workers * per_thread)]
    assert not find(Cluster(workers, gap_s=0.003, dispatch_s=0.0005).run(tasks))


@pytest.mark.parametrize("seed", range(3))
def test_widely_spread_durations_are_healthy_with_many_tasks_per_thread(seed):
    rng = random.Random(seed)
    assert not find(Cluster(10).run([Task(rng.expovariate(1.0)) for _ in range(1000)]))


@pytest.mark.parametrize(("workers", "tasks"), [(100, 110), (10, 11), (10, 25), (40, 60)])
def test_a_last_wave_that_does_not_fill_the_threads_is_healthy(workers, tasks):
    assert not find(Cluster(workers).run([Task(1.0)] * tasks))


@pytest.mark.parametrize("workers", [4, 16, 64])
def test_a_reduction_tree_in_one_graph_is_healthy(workers):
    tasks = [Task(1.0, "load")] * workers * 4
    layer = list(range(len(tasks)))
    while len(layer) > 1:
        pairs = [tuple(layer[i : i + 2]) for i in range(0, len(layer), 2)]
        layer = list(range(len(tasks), len(tasks) + len(pairs)))
        tasks = [*tasks, *(Task(1.0, "sum", needs) for needs in pairs)]
    assert not find(Cluster(workers).run(tasks))


@pytest.mark.parametrize(("workers", "partitions"), [(300, 3), (40, 5), (10, 2)])
def test_too_few_partitions_are_no_finding_of_a_trial_since_the_verdict_judges_them(workers, partitions):
    tasks = [
        Task(128.0, f"stage-{stage}", (i - partitions,) if stage else ())
        for stage in range(3)
        for i in range(stage * partitions, (stage + 1) * partitions)
    ]
    assert not find(Cluster(workers).run(tasks))


def test_a_chain_of_tasks_is_no_finding_of_a_trial_since_the_verdict_judges_it():
    assert not find(Cluster(10).run([Task(1.0, needs=(i - 1,) if i else ()) for i in range(100)]))


@pytest.mark.parametrize("workers", [4, 40])
def test_loading_filtering_and_summing_on_all_threads_is_healthy(workers):
    """Chunks are loaded, transformed and summed; all threads are used."""
    n = workers * 8
    tasks = [Task(1.0, "load") for _ in range(n)]
    tasks += [Task(0.5, "filter", (i,)) for i in range(n)]
    tasks += [Task(0.2, "sum-partial", tuple(range(n + i * 8, n + i * 8 + 8))) for i in range(workers)]
    tasks += [Task(0.1, "sum-aggregate", tuple(range(2 * n, 2 * n + workers)))]
    assert not find(Cluster(workers).run(tasks))


def test_old_records_without_some_tables_and_columns_get_no_finding():
    observation = Cluster(4).run([Task(1.0)] * 8)
    for name in ("graphs", "dependencies", "events"):
        del observation.tables[name]
    del observation.tables["tasks"]["allowed"]
    assert not find(observation)


def test_a_trial_without_records_gets_no_finding():
    assert not find(Cluster(4).observe([]))
