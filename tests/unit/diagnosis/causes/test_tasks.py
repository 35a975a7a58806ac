from __future__ import annotations

import math
import random
from typing import Any

import pytest
from support.findings import only
from support.small_cluster import Cluster, Graph, Task, find

from scalescope.diagnosis.partitions import fewer
from scalescope.model.finding import Finding, Severity
from scalescope.model.partition_calls import PartitionCall

SIZES = [(4, 1), (10, 1), (8, 4), (40, 1), (100, 2)]
SEEDS = range(4)


def noisy(rng: random.Random, seconds: float, cv: float = 0.1) -> float:
    return seconds * rng.lognormvariate(0, cv)


# ------------------------------------------------------------------ straggler


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_task_much_longer_than_the_others_is_found_as_straggler(workers, threads, seed, golden_once):
    rng = random.Random(seed)
    n = workers * threads * rng.choice([2, 3])
    where = rng.randrange(n)
    tasks = [Task(12.0 if i == where else noisy(rng, 1.0)) for i in range(n)]
    finding = golden_once(only(find(Cluster(workers, threads, gap_s=0.001).run(tasks)), "straggler"))
    assert finding.severity is Severity.HIGH


def test_time_lost_to_a_straggler_is_what_the_other_threads_wait():
    finding = find(Cluster(10).run([Task(10.0), *[Task(1.0)] * 39]))["straggler"]
    # Forty equal tasks would take 4 s. The other nine are through with theirs after 5 s (six of them after 4 s), and
    # wait 5 s for the long one.
    assert finding.lost_s == pytest.approx(6 + 9 * 5)


def test_a_straggler_that_delays_another_task_of_its_stage_is_found(golden):
    """The delayed task ends last, but the straggler still held up the stage."""
    tasks = [Task(3.0 if i == 0 else 0.5, on=(0,) if i == 6 else (), pinned=False) for i in range(12)]
    golden(find(Cluster(6).run(tasks))["straggler"])


@pytest.mark.parametrize("seconds", [6.0, 60.0], ids=["to be started first", "to be split"])
def test_a_straggler_that_started_last_is_found(golden, seconds):
    golden(find(Cluster(10).run([*[Task(1.0)] * 99, Task(seconds)]))["straggler"])


def test_a_straggler_in_the_middle_of_a_graph_is_found_if_threads_wait(golden):
    tasks = [Task(20.0 if i == 7 else 1.0, "load") for i in range(40)]
    after = [Task(1.0, "sum", tuple(range(40))), *[Task(1.0, "after", (40,))] * 40]
    assert not find(Cluster(20).run(tasks + [Task(1.0, "other")] * 360))  # other work fills the threads
    assert "straggler" not in find(Cluster(100).run([Task(1.0), Task(1.0), Task(10.0)]))
    golden(find(Cluster(20).run(tasks + after))["straggler"])


def test_a_long_task_of_another_name_is_no_straggler():
    tasks = [*[Task(1.0)] * 40, Task(20.0, "summary", tuple(range(40)))]
    assert list(find(Cluster(10).run(tasks))) == ["narrow-stage"]


def test_durations_of_an_earlier_round_make_no_straggler_of_a_later_one():
    """Forty tasks of 1 s, then two of 20 s by the same function: these are too few to call one of them long."""
    tasks = [Task(1.0) for _ in range(40)] + [Task(20.0, graph=1) for _ in range(2)]
    assert "straggler" not in find(Cluster(40).run(tasks, [Graph(), Graph(after=0, at=0.01)]))


# ------------------------------------------------------------------ skewed tasks


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_widely_spread_durations_are_found_as_skewed_tasks(workers, threads, seed, golden_once):
    rng = random.Random(seed)
    tasks = [Task(rng.lognormvariate(0, 1.2)) for _ in range(max(20, workers * threads))]
    findings = find(Cluster(workers, threads).run(tasks))
    if workers * threads * 4 > len(tasks):  # otherwise threads end nearly together
        assert list(findings) == ["skewed-tasks"]
        assert findings["skewed-tasks"].severity is Severity.HIGH
    else:
        assert set(findings) <= {"skewed-tasks"}
    golden_once(*findings.values())


def test_short_tasks_assigned_behind_long_ones_still_count_as_skewed():
    """The short tasks start late while other threads are idle; the stage is skewed all the same."""
    seconds = [3.0, 2.5, 0.6, 0.6, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.3, 0.3]
    behind = {6: (0,), 7: (1,)}
    tasks = [Task(each, on=behind.get(i, ()), pinned=False) for i, each in enumerate(seconds)]
    finding = find(Cluster(6).run(tasks))["skewed-tasks"]
    assert finding.severity is Severity.HIGH


def test_later_tasks_behind_skewed_ones_do_not_change_the_lost_time():
    """The later tasks keep no other thread from working."""
    tasks = [Task(seconds) for seconds in (9.0, 6.0, 4.0, 3.0, 2.0, 1.0)]
    alone = find(Cluster(6).run(tasks))["skewed-tasks"].lost_s
    tasks += [Task(0.01, "sum", (5,), on=(0,), pinned=False) for _ in range(3)]
    assert find(Cluster(6).run(tasks))["skewed-tasks"].lost_s == pytest.approx(alone, rel=0.05)


def test_equal_tasks_that_wait_on_one_worker_are_not_skewed():
    tasks = [Task(1.0, on=(0,) if i % 3 == 0 else (), pinned=False) for i in range(12)]
    assert "skewed-tasks" not in find(Cluster(6).run(tasks))


def test_one_long_task_in_ten_is_found_as_skewed_tasks():
    findings = find(Cluster(50).run([Task(8.0 if i % 10 == 3 else 1.0) for i in range(50)]))
    assert list(findings) == ["skewed-tasks"]


def test_one_large_partition_is_found_as_skewed_tasks(golden):
    small = [Task(10.0 if i == 3 else 1.0, nbytes=80 if i == 3 else 28) for i in range(40)]
    assert list(find(Cluster(20).run(small))) == ["straggler"]  # results are too small to show a large partition
    tasks = [Task(10.0 if i == 3 else 1.0, nbytes=10**8 if i == 3 else 10**7) for i in range(40)]
    golden(only(find(Cluster(20).run(tasks)), "skewed-tasks"))


def test_little_variation_in_one_wave_is_healthy():
    rng = random.Random(1)
    assert not find(Cluster(100).run([Task(rng.uniform(0.8, 1.2)) for _ in range(100)]))


# ------------------------------------------------------------------ slow worker


@pytest.mark.parametrize("workers", [3, 4, 10, 40])
@pytest.mark.parametrize("times", [3.0, 5.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_worker_between_barriers_is_found(workers, times, seed, golden_once):
    """Every stage ends with a barrier, at which the others wait."""
    rng = random.Random(seed)
    slow = rng.randrange(workers)
    tasks = []
    for stage in range(5):
        begin = len(tasks)
        barrier = (begin - 1,) if stage else ()
        tasks += [Task(noisy(rng, 1.0), f"stage-{stage}", barrier) for _ in range(max(workers, 6) * 2 - 1)]
        tasks += [Task(0.01, f"join-{stage}", tuple(range(begin, len(tasks))))]
    golden_once(only(find(Cluster(workers, slower={slow: times}, hosts=workers).run(tasks)), "slow-worker"))


def test_the_node_of_a_slow_worker_is_named(golden):
    pods = [{"worker": "tcp://10.0.0.1:4000", "node": "n7", "instance_type": "g2-standard-8", "spot": True}]
    seen = Cluster(3, slower={1: 4.0}, hosts=3).run([Task(1.0)] * 300, facts={"cluster": {"pods": pods}})
    golden(find(seen)["slow-worker"])


def test_a_slow_worker_without_barriers_loses_only_its_own_time():
    finding = find(Cluster(3, slower={1: 4.0}, hosts=3).run([Task(1.0)] * 300))["slow-worker"]
    makespan = 300 / (2 + 1 / 4)
    assert finding.lost_s == pytest.approx(0.75 * makespan, rel=0.1)
    assert finding.severity is Severity.MEDIUM


def test_restricted_tasks_that_take_long_are_not_a_slow_worker(golden):
    """Each worker has a shard of a dataset, and the shard may be what is large."""
    findings = find(Cluster(4, slower={1: 4.0}).run([Task(1.0, on=(i % 4,)) for i in range(40)]))
    assert next(iter(findings)) == "worker-restriction"
    assert "slow-worker" not in findings
    golden(findings["worker-restriction"])


@pytest.mark.parametrize("seed", SEEDS)
def test_random_durations_make_no_slow_worker(seed):
    rng = random.Random(seed)
    assert "slow-worker" not in find(Cluster(100).run([Task(rng.expovariate(1.0)) for _ in range(400)]))


def test_half_of_the_workers_or_one_of_many_are_not_slow():
    assert "slow-worker" not in find(Cluster(10, slower=dict.fromkeys(range(5), 3.0)).run([Task(1.0)] * 200))
    assert not find(Cluster(20, slower={1: 4.0}).run([Task(1.0)] * 600))


# ------------------------------------------------------------------ tiny tasks


@pytest.mark.parametrize(
    ("workers", "seconds", "tasks"), [(20, 0.002, 2_000), (100, 0.02, 5_000), (300, 0.2, 1_500), (2, 0.0005, 500)]
)
def test_tasks_too_short_for_the_scheduler_are_found_as_tiny_tasks(workers, seconds, tasks, golden):
    """The scheduler hands out a task each millisecond, and workers need another."""
    golden(only(find(Cluster(workers, dispatch_s=0.001, gap_s=0.001).run([Task(seconds)] * tasks)), "tiny-tasks"))


def test_workers_that_start_each_task_slowly_are_found_as_tiny_tasks(golden):
    """As in a container with a tenth of a core: each task waits 20 ms although a thread is free."""
    finding = golden(only(find(Cluster(8, gap_s=0.02).run([Task(0.05)] * 400)), "tiny-tasks"))
    assert finding.lost_s == pytest.approx(400 * 0.02, rel=0.1)
    assert not find(Cluster(8, gap_s=0.02).run([Task(0.5)] * 400))
    assert not find(Cluster(8, gap_s=0.003).run([Task(0.015)] * 400))


def test_tiny_tasks_are_found_if_they_cost_more_than_half_a_second():
    """As chunks of one step on a quiet machine: 2.5 ms from one task of 6 ms to the next."""
    finding = only(find(Cluster(2, gap_s=0.0025).run([Task(0.006)] * 4_000)), "tiny-tasks")
    assert finding.lost_s == pytest.approx(4_000 * 0.0025, rel=0.1)
    assert not find(Cluster(2, gap_s=0.0025).run([Task(0.006)] * 300))  # 0.4 s
    assert not find(Cluster(2, gap_s=0.0025).run([Task(0.06)] * 2_000))
    assert not find(Cluster(2, gap_s=0.0005).run([Task(0.006)] * 4_000))


def test_tiny_tasks_with_small_arguments_are_not_serialisation_bound():
    """As chunks of random numbers on a busy host: each call has a state of some hundred bytes."""
    tasks = [Task(0.004)] * 1_300
    assert list(find(Cluster(2, gap_s=0.03).run(tasks, [Graph(nbytes=800_000)]))) == ["tiny-tasks"]
    assert "serialisation-bound" in find(Cluster(2, gap_s=0.03).run(tasks, [Graph(nbytes=20_000_000)]))


def values(finding: Finding) -> dict[str, Any]:
    return {each.what: each.value for each in finding.evidence}


def made(call: str, partitions: int, **array: Any) -> dict[str, Any]:
    """Facts of a trial in which a call made these partitions."""
    return {"asked": [PartitionCall(call, "my_job.py:14 in run", None, partitions, **array).to_mapping()]}


@pytest.mark.parametrize("workers", [2, 8])
def test_tiny_chunks_are_named_with_their_call_and_a_sufficient_chunk_size(workers, golden):
    tasks = [Task(0.004, "load", nbytes=500_000)] * 1_200 + [Task(0.004, "add", nbytes=8)] * 1_200
    chunks = made("dask.array.from_array", 1_200, shape=(1_200, 180, 360), chunk=(1, 180, 360))
    finding = golden(only(find(Cluster(workers, gap_s=0.006).run(tasks, facts=chunks)), "tiny-tasks"))
    assert "my_job.py:14 in run" in finding.summary
    assert "`(32, 180, 360)`" in finding.remedy
    assert values(finding)["partitions that are enough"] == 38


def test_files_that_are_too_small_are_found_as_tiny_tasks(golden):
    tasks = [Task(0.01, "read", nbytes=30_000)] * 400 + [Task(0.005, "sum")] * 400
    files = made("dask.dataframe.read_parquet", 400)
    finding = golden(only(find(Cluster(2, gap_s=0.006).run(tasks, facts=files)), "tiny-tasks"))
    assert values(finding)["partitions that are enough"] == 8  # 4 for each thread


def test_advised_chunks_are_no_larger_than_memory_allows():
    tasks, chunks = [Task(0.002, nbytes=40_000_000)] * 1_000, made("dask.array.ones", 1_000)
    finding = only(find(Cluster(2, gap_s=0.006).run(tasks, facts=chunks)), "tiny-tasks")
    assert values(finding)["partitions that are enough"] == 334  # 3 of them are 120 MB


@pytest.mark.parametrize(
    ("chunk", "shape", "times", "expected"),
    [
        ((1, 180), (600, 180), 50, ((32, 180), 19)),
        ((150, 150), (6_000, 6_000), 54, ((1_200, 600), 50)),
        ((1, 10), (3, 10), 50, ((3, 10), 1)),
        ((10, 300), (600, 900), 4, ((40, 300), 45)),
    ],
)
def test_chunks_are_enlarged_along_the_axes_with_most_cuts(chunk, shape, times, expected):
    count = math.prod(math.ceil(whole / each) for whole, each in zip(shape, chunk, strict=True))
    text, left = fewer(PartitionCall("dask.array.ones", "", None, count, shape, chunk), times)
    assert (text, left) == (f"make chunks of `{expected[0]}`", expected[1])


@pytest.mark.parametrize(("workers", "seconds"), [(2, 0.005), (4, 0.05), (10, 0.1), (100, 1.0)])
def test_tasks_that_the_scheduler_can_feed_are_healthy(workers, seconds):
    assert not find(Cluster(workers, dispatch_s=0.001, gap_s=0.001).run([Task(seconds)] * workers * 20))
    assert not find(Cluster(workers).run([Task(0.005)] * 200 * workers))  # many, and none waits


def test_the_cost_charged_by_the_simulated_cluster_counts_for_tiny_tasks():
    run = Cluster(10, dispatch_s=0.01)
    tasks = [Task(0.05)] * 300
    assert not find(run.run(tasks))
    facts = {"cluster": {"scheduler_us_per_transition": 1700.0, "worker_us_per_task": 0.0}}
    assert list(find(run.run(tasks, facts=facts))) == ["tiny-tasks"]
