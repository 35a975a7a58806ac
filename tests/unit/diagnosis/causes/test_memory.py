"""Memory of results, the cost of spilling, workers after a pause, and garbage collections."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.findings import findings_of, observed, only
from support.inside import inside
from support.small_cluster import Cluster, Task, paused, standing, with_tables

from scalescope.diagnosis.causes import memory
from scalescope.diagnosis.evidence.held_results import HeldResults, held_results, most_on_one_worker
from scalescope.diagnosis.evidence.kept_memory import large_block
from scalescope.diagnosis.evidence.spilling import spilling
from scalescope.model.standstill import ALL_PAUSED, PAUSED, StandingTasks, Standstill, WorkerMemory

MIB = 2.0**20
CODES = {"memory-spill", "memory-paused", "garbage-collection"}
found = partial(findings_of, codes=CODES, bounded=CODES)
SIZES = [(1, 1), (2, 1), (4, 2), (20, 1)]


def watched(written, seconds, read=0):
    """Fine metrics of a worker that writes results to disk and whose tasks read some back."""
    return [
        ("memory-monitor", "", "disk-write", "bytes", written),
        ("memory-monitor", "", "disk-write", "seconds", seconds),
        ("execute", "use", "disk-read", "bytes", read),
    ]


def held(*megabytes):
    """Managed memory of the first worker, in MiB, each second."""
    return [(0, i + 1.0, {"managed": int(size * MIB), "rss": int(size * MIB)}) for i, size in enumerate(megabytes)]


# ------------------------------------------------------------------ nothing wrong


COLLECTED = [(0, 0.5, {"collecting": 0.01}), (0, 3.0, {"collecting": 1.5})]
HEALTHY = {
    **{
        f"results that fit, {w} workers, {t} threads": lambda w=w, t=t: with_tables(
            Cluster(w, t).run([Task(1.0)] * 10 * w * t), memory=held(100, 200, 100)
        )
        for w, t in SIZES
    },
    "a few spilled bytes": lambda: with_tables(
        Cluster(2).run([Task(1.0)] * 40), memory=held(100, 700), fine=watched(5e7, 4.0)
    ),
    # the first worker may not run these tasks, so its pause changes nothing
    "a pause that changes nothing": lambda: Cluster(2, events=paused(0, 4.0, 4.5)).run(
        [Task(1.0, on=(1,), pinned=False) for _ in range(10)]
    ),
    "collections while no task runs": lambda: with_tables(Cluster(1).run([Task(1.0)]), memory=COLLECTED),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_memory_that_costs_no_time_is_healthy(case):
    assert not found(HEALTHY[case]())


@pytest.mark.parametrize("read", [0, 10**9])
def test_spilling_that_costs_nothing_is_only_information(read, golden):
    run = Cluster(2).run([Task(1.0)] * 40)
    finding = golden(
        only(found(with_tables(run, memory=held(100, 700), fine=watched(1.3e9, 4.0, read))), "memory-spill")
    )
    assert finding.lost_s == 0


# ------------------------------------------------------------------ what it cost


@pytest.mark.parametrize(("workers", "threads"), SIZES)
def test_many_short_reads_and_writes_are_found_as_memory_spill(workers, threads):
    """The table of tasks shows no disk time, but each task waited while its worker's event loop wrote results."""
    run = Cluster(workers, threads, gap_s=0.01).run([Task(0.02)] * 30 * workers * threads)
    count = 30 * workers * threads
    fine = [
        ("execute", "work", "disk-write", "seconds", 0.006 * count),
        ("execute", "work", "disk-write", "bytes", 1e6 * count),
        ("execute", "work", "serialize", "seconds", 0.003 * count),
    ]
    finding = only(found(with_tables(run, memory=held(300), fine=fine)), "memory-spill")
    assert finding.lost_s == pytest.approx(0.009 * count, rel=1e-3)


@given(
    gap=st.floats(0, 1),
    watch=st.floats(0, 100),
    others=st.floats(0, 100),
    tasks=st.floats(0, 100),
    threads=st.integers(1, 4),
)
def test_time_lost_to_spilling_never_exceeds_the_idle_time(gap, watch, others, tasks, threads):
    run = Cluster(2, threads, gap_s=gap).run([Task(0.5)] * 20)
    fine = [
        ("memory-monitor", "", "serialize", "seconds", watch),
        ("get-data", "", "disk-read", "seconds", others),
        ("execute", "work", "disk-write", "seconds", tasks),
        ("execute", "work", "thread-cpu", "seconds", 1e6),
    ]
    seen = with_tables(run, fine=fine)
    lost_s = spilling(seen).lost_s
    assert 0 <= lost_s <= seen.seconds("spill", "not_assigned", "transfer") + 1e-9
    assert lost_s <= tasks + threads * (watch + others) + 1e-9


# ------------------------------------------------------------------ what results took


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 9.9), st.integers(1, 10**9)), min_size=1, max_size=30))
def test_held_results_are_the_highest_sum_of_managed_memory_over_all_workers(samples):
    samples = list({(worker, time): (worker, time, size) for worker, time, size in samples}.values())
    rows = [(worker, time, {"managed": size}) for worker, time, size in samples]
    seen = held_results(with_tables(Cluster(4).run([Task(10.0)] * 4), memory=rows))
    last = dict.fromkeys(range(4), 0)
    most = 0
    for worker, _, size in sorted(samples, key=lambda row: (row[1], row[0])):
        last[worker] = size
        most = max(most, sum(last.values()))
    assert seen.nbytes == most
    assert seen.largest == max(size for _, _, size in samples)


def spilled(*, used, workers):
    """Each worker holds nine results of `load`, which are used afterwards, or which nothing uses."""
    count = 9 * workers
    size = int(50 * MIB)
    tasks = [Task(0.2, "load", nbytes=size) for _ in range(count)]
    tasks += [Task(0.2, "use", (i,) if used else (), nbytes=8) for i in range(count)]
    run = Cluster(workers, gap_s=0.1).run(tasks)
    rows = [
        (worker, 0.3 * (i + 1), {"managed": size * (i + 1), "rss": size}) for worker in range(workers) for i in range(9)
    ]
    fine = [("execute", "load", "disk-write", "seconds", 6.0), ("execute", "load", "disk-write", "bytes", 1e9)]
    return with_tables(run, memory=rows, fine=fine)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_memory_spill_names_the_prefix_whose_results_took_most_memory(used, workers, golden):
    seen = spilled(used=used, workers=workers)
    what = held_results(seen)
    assert what.prefix == "load"
    assert what.nbytes == pytest.approx(workers * 9 * 50 * MIB)
    assert (what.kept > 0.5) is not used
    assert most_on_one_worker(seen) == pytest.approx(what.nbytes / workers, rel=0.3)
    assert ("`del`" in golden(found(seen)["memory-spill"]).remedy) is not used


@given(st.floats(1e6, 1e12), st.floats(1e8, 1e11), st.integers(1, 100), st.floats(0, 2e8))
def test_the_advised_limit_or_number_of_workers_holds_all_results(nbytes, limit, workers, process):
    what = held_results_of(nbytes, limit, workers, process)
    assert replace(what, limit=what.limit_for_all).fits * workers >= nbytes * (1 - 1e-9)
    if what.fits:
        assert what.workers_for_all * what.fits >= nbytes * (1 - 1e-9)


def held_results_of(nbytes, limit, workers, process):
    return HeldResults(nbytes, nbytes / workers, "load", 1.0, 0.0, "load", workers, limit, process)


# ------------------------------------------------------------------ pauses


@pytest.mark.parametrize("on", [(0, 1), (1,)])
def test_workers_that_stay_idle_after_a_pause_are_found_as_memory_paused(on, golden):
    """Tasks sent while the first worker paused stay with the second one."""
    tasks = [Task(1.0) for _ in range(4)] + [Task(1.0, on=on, pinned=False) for _ in range(12)]
    findings = found(Cluster(2, events=paused(0, 2.0, 2.5)).run(tasks))
    assert list(findings) == ([] if 0 in on else ["memory-paused"])
    if findings:
        assert findings["memory-paused"].lost_s == pytest.approx(12, rel=0.15)
    golden(*findings.values())


def test_tasks_that_a_paused_worker_never_begins_are_named(golden):
    left = StandingTasks("load", 3, False, "", "", "", PAUSED, 0)
    stopped = Standstill(still_s=54.0, threads=2, taken=0, left=3, ready=0, computing=0, groups=(left,))
    golden(only(findings_of(standing(Cluster(2), stopped), CODES), "memory-paused"))
    moving = replace(stopped, groups=(replace(left, problem="", holds=True, where="my_job.py:9"),))
    assert not findings_of(standing(Cluster(2), moving), CODES)


@pytest.mark.parametrize(("kind", "change"), [("local", {"memory_limit_mb": 1400}), ("slurm", {})])
def test_a_larger_memory_limit_is_a_change_to_measure_only_on_a_local_cluster(kind, change):
    run = with_tables(Cluster(2).run([Task(1.0)] * 4), memory=held(100), cluster={"kind": kind})
    assert memory._remedy(run, held_results_of(1600 * MIB, 600 * MIB, 2, 100 * MIB)).change == change
    assert memory._remedy(run, held_results_of(100 * MIB, 600 * MIB, 2, 100 * MIB)).change == {}  # it is large enough


@pytest.mark.parametrize(("resident", "managed", "limit"), [(520, 4, "1100MiB"), (520, 400, "")])
def test_memory_that_tasks_keep_besides_their_results_is_named_with_a_limit_that_holds_it(
    resident, managed, limit, golden
):
    """Ten tasks ended on the fullest of two workers, and ten more are to come."""
    run = Cluster(2).run([Task(1.0, "load")] * 20)
    left = StandingTasks("load", 10, False, "", "", "", ALL_PAUSED, 0)
    full = WorkerMemory(run.attempts.addresses[0], resident * 2**20, managed * 2**20)
    stopped = Standstill(54.0, 2, 0, 10, 0, 0, (left,), memory=(full, replace(full, worker="other", resident=0)))
    finding = only(findings_of(with_tables(run, standstill=stopped.to_mapping()), CODES), "memory-paused")
    assert (f"memory_limit='{limit}'" in finding.remedy) == bool(limit)
    golden(finding)


def test_a_block_that_is_too_large_for_its_worker_is_named_with_the_sizes_that_fit():
    run = with_tables(Cluster(2).run([Task(1.0, "load", nbytes=int(300 * MIB))] * 4), limit=500 * MIB)
    block = large_block(run)
    assert (block.prefix, block.nbytes) == ("load", 300 * MIB)
    assert replace(block, limit=block.fits).smaller >= block.nbytes
    assert 20 * MIB < block.smaller < 100 * MIB
    assert large_block(with_tables(Cluster(2).run([Task(1.0, nbytes=2**24)] * 4), limit=500 * MIB)) is None
    left = StandingTasks("load", 2, False, "", "", "", ALL_PAUSED, 0)
    full = WorkerMemory(run.attempts.addresses[0], int(480 * MIB), 0)
    stopped = Standstill(54.0, 2, 0, 2, 0, 0, (left,), memory=(full,)).to_mapping()
    facts = {**run.trial.facts, "standstill": stopped}
    finding = only(findings_of(observed(replace(run.trial, facts=facts), run.tables), CODES), "memory-paused")
    assert finding.remedy == block.remedy  # and no search for what tasks keep


# ------------------------------------------------------------------ garbage collection


def test_collections_caused_by_loading_are_not_found_as_garbage_collection():
    run = Cluster(2).run([Task(1.0, "match")] * 16)
    seen = with_tables(
        run, memory=[(worker, 0.5 * (i + 1), {"collecting": 0.25}) for worker in (0, 1) for i in range(16)]
    )
    assert list(found(seen)) == ["garbage-collection"]
    told = inside({"match": (15.0, 1.0)}, {"job.py:7 match;pickle.load()": 80, "job.py:9 match": 20})
    assert not found(observed(seen.trial, {**seen.tables, **told, "memory": seen.tables["memory"]}))


def test_garbage_collection_is_not_found_where_tasks_mainly_waited_for_a_core():
    run = with_tables(
        Cluster(2).run([Task(1.0, "parse")] * 16),
        memory=[(worker, 0.5 * (i + 1), {"collecting": 0.1}) for worker in (0, 1) for i in range(16)],
    )
    assert list(found(run)) == ["garbage-collection"]
    waited = replace(run.trial.metrics, busy_time_s={"computing": 6.0, "for_core": 10.0})
    assert not found(replace(run, trial=replace(run.trial, metrics=waited)))


@pytest.mark.parametrize("workers", [1, 2, 20])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_frequent_garbage_collections_are_found(workers, threads, share, golden_once):
    run = Cluster(workers, threads).run([Task(1.0, "parse")] * 8 * workers * threads)
    rows = [(worker, 0.5 * (i + 1), {"collecting": 0.5 * share}) for worker in range(workers) for i in range(16)]
    findings = found(with_tables(run, memory=rows))
    assert list(findings) == (["garbage-collection"] if share > 0.1 else [])
    if findings:
        assert findings["garbage-collection"].lost_s == pytest.approx(share * 8 * workers * threads, rel=0.05)
    golden_once(*findings.values())


def test_an_input_is_held_from_its_arrival_even_if_its_task_waits_for_a_thread():
    """An own result of 50 bytes is needed until 3 s; a fetched one of 100 bytes until 5 s, by a task from 4 s on."""
    rows = [
        {"worker": "w1", "start": 0.0, "stop": 1.0, "nbytes": 100},
        {"worker": "w0", "start": 0.0, "stop": 1.0, "nbytes": 50},
        {"worker": "w0", "start": 1.0, "stop": 3.0, "needs": (1,)},
        {"worker": "w0", "assigned": 1.0, "transfer": 0.5, "start": 4.0, "stop": 5.0, "needs": (0,)},
    ]
    waiting = Cluster(2).observe(rows)
    late = Cluster(2).observe([*rows[:3], rows[3] | {"assigned": 4.0, "transfer": 0.0}])
    assert (most_on_one_worker(waiting), most_on_one_worker(late)) == (150, 100)
