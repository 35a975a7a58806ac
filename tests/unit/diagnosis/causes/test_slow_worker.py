"""Workers that only seem slow, and the evidence that a machine is slow."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.findings import observed
from support.inside import inside
from support.small_cluster import Cluster, Task, find

from scalescope.model.records import from_rows

EPOCH = 1_000.0
SLOW = "slow-worker"


def measured(run, *, cpu=None, core_wait_s=None, idle=0.5, stacks=None, kind="own"):
    """The same trial with samples of CPU and seconds without a core of each worker, on a host with a share idle."""
    tables, addresses = dict(run.tables), run.attempts.addresses
    if cpu is not None:
        moments = range(int(run.attempts.makespan))
        rows = [
            {"worker": address, "time": EPOCH + moment + 0.1, "cpu": cpu(worker)}
            for worker, address in enumerate(addresses)
            for moment in moments
        ]
        tables["memory"] = from_rows("memory", rows)
    if core_wait_s is not None:
        tables["workers"] = {**tables["workers"], "core_wait_s": [core_wait_s(i) for i in range(len(addresses))]}
    if stacks:
        tables |= inside({"work": (0.1, 100.0)}, stacks)
    load = {"cpus": 8, "seconds": 9.0, "ours": 1 - idle, "others": 0.0, "stolen": 0.0, "idle": idle}
    trial = replace(run.trial, facts={"host": {"hostname": "h", "load": load}, "cluster": {"kind": kind}})
    return observed(replace(trial, metrics=replace(trial.metrics, elapsed_s=run.attempts.makespan)), tables)


def one_slow(*, hosts=1, functions=1, **given):
    """Two batches of a function or two, in which everything takes three times as long on one of four workers."""
    names = [f"work-{i}" if functions > 1 else "work" for i in range(2)]
    tasks = [Task(1.0, names[0]) for _ in range(24)]
    tasks += [Task(0.01, "join", tuple(range(24)))]
    tasks += [Task(1.0, names[1], (24,)) for _ in range(24)]
    return measured(Cluster(4, slower={1: 3.0}, hosts=hosts).run(tasks), **given)


# ------------------------------------------------------------------ innocents


def queue(*, hosts, unfair, seed=0, tasks=20):
    """Each task needs one shared lock for 0.3 s; worker 1 gets it `unfair` times less often than the others."""
    rng, now, rows = random.Random(seed), 0.0, []
    since = dict.fromkeys(range(4), 0.0)
    for number in range(tasks):
        now += 0.3
        worker = rng.choices(list(since), [1.0 / unfair if each == 1 else 1.0 for each in since])[0]
        begin, since[worker] = since[worker], now
        rows.append({"key": f"k{number}", "prefix": "work", "group": "work", "worker": f"tcp://10.0.0.{worker}:4000"})
        rows[-1] |= {"thread": 1, "runnable": EPOCH, "assigned": EPOCH, "start": EPOCH + begin + 1e-3}
        rows[-1] |= {"stop": EPOCH + now, "done": EPOCH + now}
    return measured(Cluster(4, hosts=hosts).observe(rows), stacks={"job.py:7 work;time.sleep()": 1000})


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("unfair", [1, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_often_loses_the_race_for_a_lock_is_not_slow(hosts, unfair, seed):
    findings = find(queue(hosts=hosts, unfair=unfair, seed=seed, tasks=40))
    assert SLOW not in findings
    assert findings["lock-bound"].gain is None
    assert "undersubscribed-threads" not in findings


def long_firsts(workers, threads, each):
    """All threads of one worker need five times as long for their first task, on a host of its own."""
    first = [Task(5.0, on=(1,), pinned=False)] * threads
    return Cluster(workers, threads, hosts=workers).run([*first, *[Task(1.0)] * (workers * threads * each)])


ONE_WAVE = [Task(5.0 if i % 4 == 1 else 1.0, on=(i % 4,), pinned=False) for i in range(16)]
NOT_SLOW = {
    **{
        f"long first tasks, {size}, {each}": lambda size=size, each=each: long_firsts(*size, each)
        for size in ((4, 2), (4, 4), (10, 4))
        for each in (3, 7, 12)
    },
    "one wave of long first tasks": lambda: Cluster(4, 4, hosts=4).run(ONE_WAVE),
    "others on the same host are fast": lambda: one_slow(idle=0.5),
    "the same, with samples": lambda: one_slow(idle=0.5, cpu=lambda worker: 1.0),
    "the same, on a full host": lambda: one_slow(idle=0.02),
    "the same, on a full host with samples": lambda: one_slow(idle=0.02, cpu=lambda worker: 1.0),
    "no core on a full host": lambda: one_slow(idle=0.02, core_wait_s=lambda worker: 12.0 * (worker == 1)),
    "the same, in two functions": lambda: one_slow(
        idle=0.02, functions=2, core_wait_s=lambda worker: 12.0 * (worker == 1)
    ),
}


@pytest.mark.parametrize("case", NOT_SLOW)
def test_a_worker_whose_tasks_are_long_for_another_reason_is_not_slow(case):
    assert SLOW not in find(NOT_SLOW[case]())


# ------------------------------------------------------------------ slow machines


def test_a_worker_whose_processor_takes_longer_is_found_as_slow(golden):
    finding = find(one_slow(hosts=4, cpu=lambda worker: 1.0))[SLOW]
    assert "retire_workers" in golden(finding).remedy
    assert finding.gain is not None


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_worker_whose_threads_lack_a_core_is_found_as_slow(hosts, golden_once):
    """Another process uses the core of one worker only."""
    finding = find(one_slow(hosts=hosts, core_wait_s=lambda worker: 12.0 * (worker == 1)))[SLOW]
    assert "retire_workers" in golden_once(finding).remedy


@pytest.mark.parametrize(("hosts", "functions"), [(4, 1), (1, 2)])
def test_without_evidence_against_the_machine_no_removal_is_advised(hosts, functions, golden):
    stacks = {"job.py:7 work;os.open()": 1000} if functions == 1 else None
    run = one_slow(hosts=hosts, functions=functions, cpu=lambda worker: 0.05, stacks=stacks)
    finding = golden(find(run)[SLOW])
    assert "retire" not in finding.remedy
    assert finding.gain is None


@pytest.mark.parametrize("others", [0, 600])
def test_a_slow_worker_is_found_among_many_prefixes(others):
    tasks = [*(Task(1.0) for _ in range(200)), *(Task(0.001, f"other{i}") for i in range(others))]
    assert SLOW in find(Cluster(10, slower={1: 4.0, 2: 4.0}, hosts=10).run(tasks))


def test_each_worker_of_an_emulated_cluster_counts_as_a_machine():
    run = one_slow()
    facts = {"cluster": {"kind": "light", "emulation": "not measured"}}
    assert SLOW in find(observed(replace(run.trial, facts=facts), run.tables))


# ------------------------------------------------------------------ first tasks


@pytest.mark.parametrize("longer", [lambda i: 10.0 if i == 0 else 1.0, lambda i: 12.0 if i < 2 else 1.5])
def test_long_first_tasks_of_workers_get_the_remedy_of_preloading(longer, golden_once):
    findings = find(Cluster(4).run([Task(1.0 + longer(i) * (i < 4)) for i in range(16)]))
    golden_once(*findings.values())
    assert findings.keys() <= {"straggler", "skewed-tasks"}
    for finding in findings.values():
        assert finding.gain is None
        assert "preload" in finding.remedy
    assert findings


@pytest.mark.parametrize("long", [(0,), (9,), (8, 13), (0, 9)])
def test_a_few_long_tasks_are_not_taken_for_first_tasks_of_workers(long):
    tasks = [Task(15.0 if i in long else 1.0) for i in range(20)]
    findings = find(Cluster(4).run(tasks))
    assert findings
    assert not any("preload" in finding.remedy for finding in findings.values())
