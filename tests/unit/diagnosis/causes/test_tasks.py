from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.findings import only, watched
from support.small_cluster import Cluster, Graph, Task, find

from scalescope.diagnosis.partitions import block, fewer, more
from scalescope.model.finding import Place, Severity
from scalescope.model.partition_calls import PartitionCall

SIZES = [(4, 1), (10, 1), (8, 4), (40, 1), (100, 2)]
SEEDS = range(4)


def noisy(rng: random.Random, seconds: float, cv: float = 0.1) -> float:
    return seconds * rng.lognormvariate(0, cv)


# ------------------------------------------------------------------ a wait between two stages


@pytest.mark.parametrize(("call", "needs"), [("wait", True), ("client.gather", True), ("wait", False)])
def test_for_unequal_stages_with_a_wait_between_them_the_advice_is_to_leave_the_wait_out(call, needs, golden):
    """Not if the client gathers the first stage, or if the second one may need files that the first wrote."""
    load = [Task(4.2 if i % 2 else 0.4, "load") for i in range(8)]
    fit = [Task(0.4 if i % 2 else 4.2, "fit", (i,) * needs, graph=1) for i in range(8)]
    waits = (4.2, ("my_job.py:24 main", call, 1)), (4.2, ("my_job.py:26 main", "client.gather", 1))
    run = Cluster(8).run([*load, *fit], [Graph(), Graph(after=0)])
    golden(find(watched(run, *waits))["skewed-tasks"])


def test_for_stragglers_of_independent_rounds_the_advice_is_to_send_all_rounds_at_once(golden):
    tasks = [Task(9.0 if i == j else 1.0, "render", graph=j) for j in range(8) for i in range(8)]
    run = Cluster(8).run(tasks, [Graph(), *[Graph(after=j) for j in range(7)]])
    golden(find(watched(run, (72.0, ("my_job.py:37 main", "as_completed", 1))))["straggler"])


def test_for_rounds_that_wait_for_all_of_their_tasks_the_advice_is_to_use_the_first_results(golden):
    tasks = [Task(9.0 if i == j else 1.0, "render", graph=j) for j in range(8) for i in range(8)]
    run = Cluster(8).run(tasks, [Graph(), *[Graph(after=j) for j in range(7)]])
    finding = golden(find(watched(run, (72.0, ("my_job.py:37 main", "wait", 1))))["straggler"])
    assert finding.place == Place("my_job.py", 37, "main")


def test_for_one_very_long_task_among_unequal_ones_the_only_advice_is_to_start_it_first(golden):
    rng = random.Random(2)
    tasks = [Task(rng.uniform(0.5, 2.0), "run") for _ in range(30)] + [Task(14.0, "run")]
    golden(find(Cluster(4).run(tasks))["skewed-tasks"])


@pytest.mark.parametrize("nbytes", [0, 100_000])
def test_the_advice_for_reading_text_is_a_block_size_if_its_bytes_are_known_or_else_repartition(nbytes):
    text = more(PartitionCall("dask.bag.read_text", "my_job.py:4 in run", None, 1, nbytes=nbytes), 4)
    assert ("blocksize=25_000" in text, "repartition(npartitions=4)" in text) == (nbytes > 0, nbytes == 0)


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


def test_time_lost_to_a_straggler_is_the_wait_of_the_other_threads():
    finding = find(Cluster(10).run([Task(10.0), *[Task(1.0)] * 39]))["straggler"]
    # Forty equal tasks would take 4 s. The other nine are through with theirs after 5 s (six of them after 4 s), and
    # wait 5 s for the long one.
    assert finding.lost_s == pytest.approx(6 + 9 * 5)


LONG_LOAD = [Task(20.0 if i == 7 else 1.0, "load") for i in range(40)]
STRAGGLERS = {
    # the delayed task ends last, but the straggler still held up the stage
    "it delays another": (6, [Task(0.5 if i else 3.0, on=(0,) if i == 6 else (), pinned=False) for i in range(12)]),
    "to be started first": (10, [*[Task(1.0)] * 99, Task(6.0)]),
    "to be started first, and still the last to end": (4, [*[Task(1.0)] * 12, Task(4.0)]),
    "to be split": (10, [*[Task(1.0)] * 99, Task(60.0)]),
    "amid a graph": (20, [*LONG_LOAD, Task(1.0, "sum", tuple(range(40))), *[Task(1.0, "after", (40,))] * 40]),
}


@pytest.mark.parametrize("case", STRAGGLERS)
def test_a_straggler_is_found_wherever_threads_wait_for_it(case, golden):
    workers, tasks = STRAGGLERS[case]
    golden(find(Cluster(workers).run(tasks))["straggler"])


@pytest.mark.parametrize(
    ("workers", "tasks", "graphs"),
    [
        pytest.param(20, LONG_LOAD + [Task(1.0, "other")] * 360, [Graph()], id="other work fills the threads"),
        pytest.param(100, [Task(1.0), Task(1.0), Task(10.0)], [Graph()], id="there are more threads than tasks"),
        pytest.param(10, [*[Task(1.0)] * 40, Task(20.0, "sum", tuple(range(40)))], [Graph()], id="another name"),
        pytest.param(
            40, [Task(1.0)] * 40 + [Task(20.0, graph=1)] * 2, [Graph(), Graph(after=0, at=0.01)], id="another round"
        ),
    ],
)
def test_a_long_task_that_no_equal_one_waits_for_is_no_straggler(workers, tasks, graphs):
    assert "straggler" not in find(Cluster(workers).run(tasks, graphs))


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


def test_little_variation_or_waiting_on_one_worker_is_no_skew():
    rng = random.Random(1)
    assert not find(Cluster(100).run([Task(rng.uniform(0.8, 1.2)) for _ in range(100)]))
    tasks = [Task(1.0, on=(0,) if i % 3 == 0 else (), pinned=False) for i in range(12)]
    assert "skewed-tasks" not in find(Cluster(6).run(tasks))


def test_one_long_task_in_ten_or_one_large_partition_is_found_as_skewed_tasks(golden):
    only(find(Cluster(50).run([Task(8.0 if i % 10 == 3 else 1.0) for i in range(50)])), "skewed-tasks")
    small = [Task(10.0 if i == 3 else 1.0, nbytes=80 if i == 3 else 28) for i in range(40)]
    assert list(find(Cluster(20).run(small))) == ["straggler"]  # results are too small to show a large partition
    tasks = [Task(10.0 if i == 3 else 1.0, nbytes=10**8 if i == 3 else 10**7) for i in range(40)]
    golden(only(find(Cluster(20).run(tasks)), "skewed-tasks"))


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


def test_a_slow_worker_without_barriers_is_charged_only_its_own_time_and_its_node_is_named(golden):
    pods = [{"worker": "tcp://10.0.0.1:4000", "node": "n7", "instance_type": "g2-standard-8", "spot": True}]
    run = Cluster(3, slower={1: 4.0}, hosts=3).run([Task(1.0)] * 300, facts={"cluster": {"pods": pods}})
    finding = golden(find(run)["slow-worker"])
    assert finding.lost_s == pytest.approx(0.75 * 300 / (2 + 1 / 4), rel=0.1)
    assert finding.severity is Severity.MEDIUM


def test_restricted_tasks_that_take_long_are_not_found_as_a_slow_worker(golden):
    """Each worker has a shard of a dataset, and the shard may be what is large."""
    findings = find(Cluster(4, slower={1: 4.0}).run([Task(1.0, on=(i % 4,)) for i in range(40)]))
    assert next(iter(findings)) == "worker-restriction"
    assert "slow-worker" not in findings
    golden(findings["worker-restriction"])


def test_random_durations_or_half_of_all_workers_being_slow_are_not_found_as_a_slow_worker():
    for seed in SEEDS:
        rng = random.Random(seed)
        assert "slow-worker" not in find(Cluster(100).run([Task(rng.expovariate(1.0)) for _ in range(400)]))
    assert "slow-worker" not in find(Cluster(10, slower=dict.fromkeys(range(5), 3.0)).run([Task(1.0)] * 200))
    assert not find(Cluster(20, slower={1: 4.0}).run([Task(1.0)] * 600))  # one of many


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


def test_tiny_tasks_with_small_arguments_are_not_found_as_serialisation_bound():
    """As chunks of random numbers on a busy host: each call has a state of some hundred bytes."""
    tasks = [Task(0.004)] * 1_300
    assert list(find(Cluster(2, gap_s=0.03).run(tasks, [Graph(nbytes=800_000)]))) == ["tiny-tasks"]
    assert "serialisation-bound" in find(Cluster(2, gap_s=0.03).run(tasks, [Graph(nbytes=20_000_000)]))


TINY = {
    "chunks, 2 workers": (2, "dask.array.from_array", (0.004, 500_000, 1_200), 0.004, 38),
    "chunks, 8 workers": (8, "dask.array.from_array", (0.004, 500_000, 1_200), 0.004, 38),
    "files": (2, "dask.dataframe.read_parquet", (0.01, 30_000, 400), 0.005, 8),  # 4 for each thread
    "as memory allows": (2, "dask.array.ones", (0.002, 40_000_000, 1_000), 0.002, 334),  # 3 of them are 120 MB
}


@pytest.mark.parametrize("case", TINY)
def test_tiny_partitions_are_named_with_their_call_and_a_sufficient_number(case, golden):
    workers, call, (seconds, nbytes, count), then_s, enough = TINY[case]
    array = {"shape": (1_200, 180, 360), "chunk": (1, 180, 360)} if call == "dask.array.from_array" else {}
    asked = PartitionCall(call, "my_job.py:14 in run", None, count, **array).to_mapping()
    tasks = [Task(seconds, "read", nbytes=nbytes)] * count + [Task(then_s, "sum", nbytes=8)] * count
    finding = golden(only(find(Cluster(workers, gap_s=0.006).run(tasks, facts={"asked": [asked]})), "tiny-tasks"))
    assert {each.what: each.value for each in finding.evidence}["partitions that are enough"] == enough


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


def test_tiny_tasks_are_found_by_the_cost_per_task_that_the_simulated_cluster_charges():
    run = Cluster(10, dispatch_s=0.01)
    tasks = [Task(0.05)] * 300
    assert not find(run.run(tasks))
    facts = {"cluster": {"scheduler_us_per_transition": 1700.0, "worker_us_per_task": 0.0}}
    assert list(find(run.run(tasks, facts=facts))) == ["tiny-tasks"]


@given(nbytes=st.integers(0, 10**12), parts=st.integers(1, 1000))
def test_the_proposed_block_size_gives_at_least_the_wanted_number_of_blocks_and_hardly_more(nbytes, parts):
    size = block(PartitionCall("dask.bag.read_text", "", None, 1, nbytes=nbytes), parts)
    if size is None:
        assert nbytes < 100 * parts
    else:
        assert parts <= math.ceil(nbytes / size) <= 1.2 * parts + 2
