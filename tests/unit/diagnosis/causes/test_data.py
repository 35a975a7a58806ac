from __future__ import annotations

import random
from array import array
from dataclasses import replace
from functools import partial

import pytest
from support.findings import findings_of, observed, only, watched
from support.inside import inside
from support.small_cluster import Cluster, Graph, Task, in_turn, paused

from scalescope.model.finding import Place, Severity
from scalescope.model.large_part import LargePart
from scalescope.model.records import AGAIN, from_rows

SIZES = [(1, 1), (2, 1), (4, 2), (20, 1), (100, 1)]
EPOCH = 1_000.0
CODES = {"transfer-bound", "serialisation-bound", "memory-spill", "memory-paused", "recomputation", "meta-computed"}
WORK, MIN, MAX = "job.py:9 load;time.sleep()", "numpy.min", "numpy.max"
found = partial(findings_of, codes=CODES, bounded=CODES)


def changed(observation, **columns):
    """The same trial with other columns of the table `tasks`, each given as a function of a row, or as one value."""
    tasks = dict(observation.tables["tasks"])
    for name, value in columns.items():
        count = len(tasks["key"])
        values = [value(row) if callable(value) else value for row in range(count)]
        tasks[name] = values if isinstance(tasks[name], list) else array(tasks[name].typecode, values)
    return observed(observation.trial, {**observation.tables, "tasks": tasks})


# ------------------------------------------------------------------ transfer


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_tasks_that_wait_for_transfers_are_found_as_transfer_bound(workers, threads, share, golden_once):
    tasks = [Task(1.0 - share, "reduce", transfer=share, nbytes=10**7)] * workers * threads * 4
    finding = golden_once(only(found(Cluster(workers, threads).run(tasks)), "transfer-bound"))
    assert finding.lost_s == pytest.approx(share * 4 * workers * threads)
    assert finding.severity is (Severity.HIGH if share >= 0.3 else Severity.MEDIUM)


@pytest.mark.parametrize(
    ("hosts", "facts", "change"),
    [(1, {}, {"workers": 1, "threads_per_worker": 4}), (2, {}, {}), (1, {"cluster": {"clock": "virtual"}}, {})],
    ids=["one host", "two hosts", "simulated"],
)
def test_one_worker_with_all_threads_is_proposed_only_if_all_workers_are_on_one_real_host(hosts, facts, change):
    tasks = [Task(0.6, "reduce", transfer=0.4, nbytes=10**7)] * 16
    seen = Cluster(4, hosts=hosts).run(tasks, facts=facts)
    metrics = replace(seen.trial.metrics, elapsed_s=4.0)
    finding = found(observed(replace(seen.trial, metrics=metrics), seen.tables))["transfer-bound"]
    assert finding.gain.change == change


@pytest.mark.parametrize("prefix", ["read", "shuffle-shuffle-join-total"])
def test_transferred_bytes_count_once_for_each_receiving_worker(prefix, golden):
    loads = [Task(1.0, "load", on=(i,), nbytes=10**8) for i in range(4)]
    reads = [Task(0.5, prefix, ((i + 1) % 4,), on=(i % 4,), nbytes=8, transfer=0.5) for i in range(16)]
    golden(found(Cluster(4).run(loads + reads))["transfer-bound"])


@pytest.mark.parametrize("workers", [4, 20])
def test_one_result_that_all_tasks_need_is_named(workers, golden_once):
    tasks = [Task(0.2, "model", nbytes=10**9)]
    tasks += [Task(0.5, "predict", (0,), nbytes=8, transfer=2.0 if i < workers else 0.0) for i in range(4 * workers)]
    golden_once(found(Cluster(workers).run(tasks))["transfer-bound"])


HIDDEN = {"transfer": 0.9, "assigned": EPOCH + 1e-9}  # inputs of the next task arrive while the thread computes
HEALTHY = {
    **{
        f"hidden, {n} threads": lambda n=n: changed(Cluster(4, n).run([Task(1.0)] * 40 * n), **HIDDEN)
        for n in (1, 2, 4)
    },
    "messages of 2 ms": lambda: Cluster(4).run([Task(0.004, transfer=0.002, nbytes=100) for _ in range(400)]),
    "messages of 5 ms": lambda: Cluster(4).run([Task(0.004, transfer=0.005, nbytes=100) for _ in range(400)]),
    "a little transfer": lambda: Cluster(4).run([Task(1.0, transfer=0.08)] * 40),
    "spilling hidden by computing": lambda: changed(Cluster(4).run([Task(1.0)] * 40), disk_write=0.9),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_transfers_that_are_small_or_hidden_by_computing_are_healthy(case):
    assert not found(HEALTHY[case]())


# ------------------------------------------------------------------ serialisation


@pytest.mark.parametrize(("workers", "threads"), SIZES)
def test_unpacking_reported_by_older_releases_is_found_as_serialisation_bound(workers, threads, golden_once):
    run = Cluster(workers, threads, gap_s=0.4).run([Task(0.6, "train")] * workers * threads * 6)
    assert golden_once(only(found(changed(run, deserialize=0.4)), "serialisation-bound")).severity is Severity.HIGH


@pytest.mark.parametrize("workers", [1, 4, 40])
def test_imports_in_the_first_tasks_of_workers_have_low_severity(workers, golden_once):
    run = Cluster(workers).run([Task(2.0 if i < workers else 1.0) for i in range(workers * 4)])
    imports = {"deserialize": lambda row: 1.0 if row < workers else 0.001}
    seen = changed(run, start=lambda row: run.tables["tasks"]["start"][row] + (row < workers), **imports)
    assert golden_once(found(seen)["serialisation-bound"]).severity is Severity.LOW


@pytest.mark.parametrize("workers", [1, 2, 10])
def test_tasks_that_carry_large_calls_are_found_as_serialisation_bound(workers, golden_once):
    run = Cluster(workers, gap_s=0.3).run([Task(0.05, "unpack")] * workers * 6, [Graph(nbytes=2_000_000)])
    finding = golden_once(found(run)["serialisation-bound"])
    assert finding.severity is Severity.HIGH
    assert finding.confidence < 0.9


@pytest.mark.parametrize(
    ("gap_s", "seconds", "count", "nbytes"),
    [
        pytest.param(0.3, 0.05, 40, 20_000, id="a light graph that starts late"),
        pytest.param(0.004, 0.004, 400, 5_000_000, id="a large graph of small tasks"),
        pytest.param(0.002, 1.0, 40, 5_000_000, id="a large graph that is handed out fast"),
    ],
)
def test_light_or_quickly_started_tasks_are_not_found_as_serialisation_bound(gap_s, seconds, count, nbytes):
    assert not found(Cluster(4, gap_s=gap_s).run([Task(seconds)] * count, [Graph(nbytes=nbytes)]))


def test_random_states_of_calls_are_not_found_as_serialisation_bound():
    run = Cluster(4, gap_s=0.3).run([Task(0.05, "mean_chunk")] * 2_000, [Graph(nbytes=1_200_000)])
    part = LargePart(1_200_000, "random_sample", "argument `state_data`", "numpy.ndarray (624)", 500_000, 200, "")
    assert "serialisation-bound" not in found(
        observed(replace(run.trial, facts={"large": [part.to_mapping()]}), run.tables)
    )


@pytest.mark.parametrize(("shared", "heavy"), [(0, False), (20_000, False), (150_000, True)])
def test_data_that_all_calls_share_counts_once_for_each_task(shared, heavy):
    """Data that all calls share is packed once in the graph, but once for each task that is sent to a worker."""
    calls = [Task(0.05, "unpack")] * 2_000
    run = Cluster(4, gap_s=0.3).run(calls, [Graph(nbytes=180 * len(calls) + shared)])
    at = "my_job.py:14 in run"
    part = LargePart(180 * len(calls) + shared, "unpack", "argument `table`", "dict", shared, len(calls), at)
    run = observed(replace(run.trial, facts={"large": [part.to_mapping()] if shared else []}), run.tables)
    places = [each.place for code, each in found(run).items() if code == "serialisation-bound"]
    assert places == [Place("my_job.py", 14, "run", "table")] * heavy


@pytest.mark.parametrize(("again", "predicted_s"), [(False, 4.0), (True, 1.0)])
def test_the_predicted_time_includes_sending_each_object_once(again, predicted_s):
    run = Cluster(4, gap_s=1.0).run([Task(0.1, "unpack")] * 40, [Graph(nbytes=100_000_000)] * 4)
    parts = [
        LargePart(100_000_000, "unpack", "argument `table`", "dict", 100_000_000, 1, "", again and i > 0)
        for i in range(4)
    ]
    facts = {"large": [part.to_mapping() for part in parts]}
    metrics = replace(run.trial.metrics, elapsed_s=run.attempts.makespan)
    run = observed(replace(run.trial, facts=facts, metrics=metrics), run.tables)
    assert found(run)["serialisation-bound"].gain.predicted_s == pytest.approx(predicted_s, rel=0.15)


@pytest.mark.parametrize(("first_s", "later_s", "named"), [(3.0, 0.01, True), (0.1, 0.01, False), (3.0, 1.0, False)])
def test_slow_starts_of_first_tasks_are_found_unless_later_ones_are_slow_too(first_s, later_s, named, golden):
    run = Cluster(4, 2).run([Task(1.0 + (first_s if i < 8 else later_s)) for i in range(40)])
    late = changed(run, start=lambda row: run.tables["tasks"]["start"][row] + (first_s if row < 8 else later_s))
    findings = found(late)
    assert ("serialisation-bound" in findings) is named
    assert all(finding.severity is Severity.LOW for finding in findings.values())
    golden(*findings.values())


def test_first_tasks_delayed_by_a_stalled_scheduler_are_not_found_as_serialisation_bound():
    run = Cluster(4).run([Task(4.0 if i < 4 else 1.0) for i in range(40)])
    run = changed(run, start=lambda row: run.tables["tasks"]["start"][row] + (3.0 if row < 4 else 0.0))
    lag = {"process": ["scheduler"], "time": array("d", [EPOCH + 3.0]), "seconds": array("d", [2.9])}
    assert "serialisation-bound" not in found(observed(run.trial, {**run.tables, "lag": lag}))


def test_waiting_for_a_free_thread_is_not_found_as_serialisation_bound():
    """All tasks were assigned at once; each starts when the one before ends."""
    run = Cluster(2).run([Task(1.0)] * 20, [Graph(nbytes=5_000_000)])
    assert not found(changed(run, assigned=EPOCH + 1e-9))


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize(("workers", "threads"), SIZES)
def test_tasks_that_read_spilled_results_are_found_as_memory_spill(workers, threads, golden_once):
    run = Cluster(workers, threads, gap_s=0.5).run([Task(0.5, "sum")] * workers * threads * 4)
    run = changed(run, disk_read=0.5)
    rows = [("tcp://10.0.0.0:4000", i, spilled) for i, spilled in enumerate([0, 3 * 10**9, 2 * 10**9])]
    memory = from_rows(
        "memory",
        [
            {"worker": worker, "time": EPOCH + time, "spilled": spilled, "rss": 1, "managed": 1}
            for worker, time, spilled in [*rows, ("scheduler", 0, 0)]
        ],
    )
    trial = replace(run.trial, facts={"cluster": {"memory_limit_mb": 400}})
    golden_once(only(found(observed(trial, {**run.tables, "memory": memory})), "memory-spill"))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_paused_workers_are_found_as_memory_paused(workers):
    """The first worker pauses for a while; tasks wait meanwhile."""
    events = [event for worker in range(workers) for event in paused(worker, 2.0, 6.0)]
    run = Cluster(workers, events=events).run([Task(1.0)] * workers * 8)

    def later(name):
        return lambda row: (
            run.tables["tasks"][name][row] + (4.0 if run.tables["tasks"]["start"][row] >= EPOCH + 2 else 0)
        )

    run = changed(run, start=later("start"), stop=later("stop"), done=later("done"), assigned=later("assigned"))
    finding = only(found(run), "memory-paused")
    assert finding.lost_s == pytest.approx(4.0 * workers, rel=0.05)
    assert finding.severity is Severity.HIGH


@pytest.mark.parametrize("managed", [50_000_000, 900_000_000], ids=["Dask knows of little", "Dask knows of most"])
def test_the_remedy_for_paused_workers_depends_on_whether_dask_knows_of_the_memory(managed, golden):
    run = Cluster(1, events=paused(0, 1.0, 5.0)).run([Task(1.0)] * 4)
    times = [1.0, 6.0, 7.0, 8.0]
    rows = [
        {"worker": "tcp://10.0.0.0:4000", "time": EPOCH + 0.5, "rss": 2 * 10**9},
        {"worker": "tcp://10.0.0.0:4000", "time": EPOCH + 3, "rss": 10**9, "managed": managed},
    ]
    memory = from_rows("memory", rows)
    run = changed(
        run,
        start=lambda row: EPOCH + times[row] - 1 + 1e-9,
        **dict.fromkeys(("stop", "done"), lambda row: EPOCH + times[row]),
    )
    golden(found(observed(run.trial, {**run.tables, "memory": memory}))["memory-paused"])


def test_a_short_pause_or_a_pause_without_waiting_tasks_is_healthy():
    assert not found(Cluster(4, events=paused(0, 1.0, 1.2)).run([Task(1.0)] * 40))
    tasks = [
        Task(10.0) if i else Task(1.0) for i in range(4)
    ]  # one task for each worker, so that none waits for the paused one
    assert not found(Cluster(4, events=paused(0, 1.0, 10.0)).run(tasks))


# ------------------------------------------------------------------ recomputation


@pytest.mark.parametrize("call", ["ddf.set_index", "ddf.mean"])
def test_for_data_read_twice_because_of_set_index_the_advice_is_to_give_divisions(call, golden):
    run = Cluster(4).run([Task(1.0, "load", graph=i // 12) for i in range(24)], in_turn(2, 0.0))
    run = changed(run, key=lambda row: f"load-{row % 12:032x}")
    golden(
        only(
            found(watched(run, (3.0, ("job.py:9 main", call, 1)), (3.0, ("job.py:12 main", "….compute", 1)))),
            "recomputation",
        )
    )


@pytest.mark.parametrize(("workers", "threads"), SIZES)
@pytest.mark.parametrize("times", [2, 4])
def test_tasks_computed_again_in_later_graphs_are_found_as_recomputation(workers, threads, times, golden_once):
    each = workers * threads * 3
    tasks = [Task(1.0, "load", graph=i // each) for i in range(each * times)]
    graphs = in_turn(times, 0.0)
    run = Cluster(workers, threads).run(tasks, graphs)
    assert not found(changed(run, key=lambda row: f"load-{row % each}"))  # the user's own key: new work each time
    finding = golden_once(only(found(changed(run, key=lambda row: f"load-{row % each:032x}")), "recomputation"))
    assert finding.lost_s == pytest.approx((times - 1) * each)


@pytest.mark.parametrize(("calls", "graphs"), [(1, 1), (8, 1), (8, 4)])
def test_equal_calls_with_random_keys_are_found_as_recomputation_only_if_several_calls_repeat(calls, graphs, golden):
    """One call that is made again and again may be a simulation."""
    told = {"prefix": "read", "step": "m.read", "first": "read", "tasks": 24, "seconds": 24.0, "calls": calls}
    tasks = [Task(1.0, "read", graph=i * graphs // 32) for i in range(32)]
    run = Cluster(4, events=[(9.0, AGAIN, told)]).run(tasks, in_turn(graphs, 0.0))
    rows = from_rows("inside", [{"prefix": "read", "stack": WORK, "samples": 100}])
    findings = found(observed(run.trial, {**run.tables, **inside({"read": (30.0, 2.0)}), "inside": rows}))
    assert list(findings) == ["recomputation"] * (calls > 1)
    golden(*findings.values())


@pytest.mark.parametrize(
    ("stacks", "share"),
    [
        ({"chunk_min": {WORK: 95, MIN: 5}, "chunk_max": {WORK: 95, MAX: 5}}, 0.95),
        ({"chunk_min": {WORK: 95, MIN: 5}, "chunk_max": {WORK: 40, MAX: 60}}, 0.4),
        ({"chunk_min": {WORK: 1, MIN: 99}, "chunk_max": {WORK: 1, MAX: 99}}, 0.0),  # what they share costs nothing
        ({}, 0.0),  # what the tasks did is not known
    ],
)
def test_a_step_repeated_inside_fused_tasks_is_found_as_recomputation(stacks, share, golden):
    tasks = [Task(1.0, prefix, graph=i) for i, prefix in enumerate(("chunk_min", "chunk_max")) for _ in range(16)]
    told = {"prefix": "chunk_max", "step": "load", "first": "chunk_min", "tasks": 16, "seconds": 16.0}
    run = Cluster(4, events=[(9.0, AGAIN, told)]).run(tasks, [Graph(), Graph(after=0)])
    rows = [
        {"prefix": prefix, "stack": stack, "samples": samples}
        for prefix, counted in stacks.items()
        for stack, samples in counted.items()
    ]
    spent = inside({"chunk_min": (15.0, 1.0), "chunk_max": (15.0, 1.0)})
    findings = found(observed(run.trial, {**run.tables, **spent, "inside": from_rows("inside", rows)}))
    assert list(findings) == (["recomputation"] if share else [])
    if share:
        assert findings["recomputation"].lost_s == pytest.approx(share * 16, rel=0.05)
    golden(*findings.values())


def test_a_few_recomputed_tasks_and_retries_that_succeed_are_healthy():
    for seed in range(3):
        again = set(random.Random(seed).sample(range(100, 200), 5))
        run = Cluster(10).run([Task(1.0) for _ in range(200)])
        assert not found(changed(run, key=lambda row, again=again: f"load-{row - 100 if row in again else row:032x}"))
    run = Cluster(4).run([Task(1.0) for _ in range(80)])  # half of them err once before they finish
    retried = {"key": lambda row: f"get-{row % 40}", "status": lambda row: int(row < 40)}
    assert not found(changed(run, **retried, retries=lambda row: row // 40))


@pytest.mark.parametrize(
    ("call", "graph", "code"),
    [
        pytest.param("dd.from_delayed", 1, "meta-computed", id="it sent a task there"),
        pytest.param("….to_dataframe", 1, "meta-computed", id="of a bag"),
        pytest.param("dd.from_delayed", 0, "recomputation", id="the task was sent before"),
        pytest.param("….compute", 1, "recomputation", id="another call"),
    ],
)
def test_a_partition_computed_only_to_learn_its_columns_is_found_as_meta_computed_and_not_recomputation(
    call, graph, code, golden
):
    """Two of eight tasks of 2 s run alone on four threads, and again with the others."""
    tasks = [Task(2.0, "load", graph=int(i > 1)) for i in range(10)]
    run = Cluster(4).run(tasks, in_turn(2, 0.0))
    run = changed(run, key=lambda row: f"load-{row % 8:032x}", graph=lambda row: 2 if row > 1 else graph)
    run = watched(run, (0.001, ("job.py:9 main", call, 0)), (1.999, ("job.py:9 main", call, 1)), begin=-0.001)
    run = replace(run, trial=replace(run.trial, metrics=replace(run.trial.metrics, elapsed_s=6.0)))
    finding = golden(only(found(run), code))
    if code == "meta-computed":
        assert finding.lost_s == pytest.approx(4 * 2.0, rel=0.01)
        assert finding.gain.predicted_s == pytest.approx(4.0, rel=0.01)
        assert finding.place == Place("job.py", 9, "main")


@pytest.mark.parametrize("expected", [True, False])
def test_results_lost_by_scaling_down_are_found_as_recomputation(expected, golden):
    """The results were on a worker that was scaled down; a worker that died is another cause."""
    removal = {"action": "remove-worker", "worker": "tcp://10.0.0.0:4000", "expected": expected}
    run = Cluster(2, left={0: 10.5}, events=[(10.5, "all", removal)]).run(
        [Task(1.0, on=(0, 1) if i < 20 else (1,)) for i in range(30)]
    )
    run = changed(run, key=lambda row: f"load-{(row - 20) * 2 if row >= 20 else row}")
    findings = found(run)
    assert list(findings) == (["recomputation"] if expected else [])
    golden(*findings.values())
