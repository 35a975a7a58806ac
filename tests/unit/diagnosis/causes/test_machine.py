from __future__ import annotations

import random
from array import array
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.findings import findings_of, observed, only
from support.inside import inside
from support.small_cluster import Cluster, Task

from scalescope.diagnosis.evidence import host_cpu
from scalescope.model.finding import PERHAPS, Severity
from scalescope.model.records import from_rows

SIZES = [(1, 2), (1, 4), (4, 4), (20, 2), (100, 8)]
EPOCH = 1_000.0
CODES = {"gil-bound", "event-loop-blocked", "oversubscribed-threads", "undersubscribed-threads", "host-overloaded"}
found = partial(findings_of, codes=CODES, bounded=CODES)


def load(cpus=8, *, ours=0.3, own=0.0, others=0.02, stolen=0.0, seconds=9.0):
    """The fact `host.load`: shares of the host's cores."""
    shares = {"ours": ours, "own": own, "others": others, "stolen": stolen, "idle": 1 - ours - others - stolen}
    return {"cpus": cpus, "seconds": seconds, **shares}


def on(observation, host, *, cpu=None, lag=(), graphs=(), clock="real", late=lambda *_: 0.0, workers=None):
    """The same trial on a host, with samples of CPU (a number, or a function of worker and sample) and stalls."""
    addresses = observation.tables["workers"]["worker"]
    seconds = observation.attempts.makespan
    tables = dict(observation.tables)
    if cpu is not None:
        rows = []
        for worker, address in enumerate(addresses[:workers]):
            moment, sample = 0.1, 0
            while moment < seconds + 1:
                used = cpu(worker, sample) if callable(cpu) else cpu
                rows.append({"worker": address, "time": EPOCH + moment, "cpu": used})
                moment += 0.5 + late(worker, sample)
                sample += 1
        rows.append({"worker": "scheduler", "time": EPOCH + 1, "cpu": 0.3})
        tables["memory"] = from_rows("memory", rows)
    stalls = [{"process": process, "time": EPOCH + time, "seconds": seconds} for process, time, seconds in lag]
    tables["lag"] = from_rows("lag", stalls)
    if graphs:
        known = {"client": "Client-1", "tasks": 1, "nbytes": 1000}
        sent = [{"time": EPOCH + time, "seconds": seconds, **known} for time, seconds in graphs]
        tables["graphs"] = from_rows("graphs", sent)
    facts = {"host": {"hostname": "h", "load": host}, "cluster": {"clock": clock}}
    return observed(replace(observation.trial, facts=facts), tables)


def within_one_process(observation):
    """The same trial, with the workers in the process of client and scheduler."""
    tables = dict(observation.tables)
    for table in ("tasks", "workers"):
        renamed = [f"inproc://{each}" for each in tables[table]["worker"]]
        tables[table] = {**tables[table], "worker": renamed}
    return observed(observation.trial, tables)


KEPT_S = 0.008  # seconds between two tasks while threads keep the interpreter lock


def full(workers, threads, *, seconds=1.0, each=10, gap_s=0.0):
    """A trial in which all threads compute all the time."""
    return Cluster(workers, threads, gap_s=gap_s).run([Task(seconds, "parse") for _ in range(workers * threads * each)])


# ------------------------------------------------------------------ what is computed


def clocks(observation, *, computing, for_core, stack="job.py:9 parse"):
    """The same trial with clocks of threads: shares of computing and of waiting for a core; they wait for the rest."""
    busy = observation.seconds("busy")
    told = inside({"parse": (computing * busy, (1 - computing) * busy)}, {stack: 1000})
    workers = dict(observation.tables["workers"])
    workers["core_wait_s"] = [for_core * busy / len(workers["worker"])] * len(workers["worker"])
    return observed(observation.trial, {**observation.tables, **told, "workers": workers})


def test_the_number_of_running_tasks_is_averaged_over_each_interval_between_samples():
    run = Cluster(2, 2).run([Task(1.0), Task(2.0), Task(4.0)])
    ends = np.array([1.0, 2.0, 4.0, 4.0])
    found = host_cpu.running(run, np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 2.0, 0.0]), ends)
    assert found == pytest.approx([2.0, 1.0, 0.0, 1.0])


def test_cpu_samples_are_assigned_to_their_workers_with_interval_and_running_tasks():
    run = on(full(2, 2), load(), cpu=lambda worker, sample: worker + sample / 100)
    samples = host_cpu.samples(run)
    assert set(samples.worker) == {0, 1}
    assert samples.seconds == pytest.approx(0.5)
    assert samples.running == pytest.approx(2.0)
    assert samples.cpu[samples.worker == 1].min() == pytest.approx(1.01, abs=1e-3)


# ------------------------------------------------------------------ interpreter lock


@pytest.mark.parametrize(
    ("computing", "for_core", "stack", "is_locked"),
    [
        pytest.param(0.1, 0.15, "job.py:9 parse", True, id="they take turns, on less than a core"),
        pytest.param(0.25, 0.01, "job.py:9 parse", True, id="they take turns"),
        pytest.param(0.25, 0.0, "job.py:9 parse", False, id="whether they wanted a core is not known"),
        pytest.param(0.3, 0.65, "job.py:9 parse", False, id="they want a core each"),
        pytest.param(0.25, 0.0, "job.py:9 parse;time.sleep()", False, id="they sleep"),
        pytest.param(0.02, 0.03, "job.py:9 parse", False, id="they wait in a call that is not known"),
    ],
)
def test_threads_that_take_turns_are_found_as_gil_bound_on_a_full_host_too(computing, for_core, stack, is_locked):
    run = on(full(1, 4, gap_s=KEPT_S), load(2, ours=0.2, others=0.78))
    assert ("gil-bound" in found(clocks(run, computing=computing, for_core=for_core, stack=stack))) == is_locked


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("workers", "threads"), SIZES)
def test_threads_that_share_one_core_per_worker_are_found_as_gil_bound(workers, threads, seed, golden_once):
    rng = random.Random(seed)
    run = full(workers, threads, gap_s=KEPT_S)
    finding = golden_once(
        only(found(on(run, load(4 * workers, ours=0.3), cpu=lambda *_: rng.gauss(1.0, 0.05))), "gil-bound")
    )
    assert finding.severity is Severity.HIGH
    assert finding.lost_s == pytest.approx((threads - 1) * workers * run.attempts.makespan, rel=0.2)


def test_gil_bound_workers_are_found_beside_workers_that_are_not(golden):
    run = full(4, 4, gap_s=KEPT_S)
    golden(found(on(run, load(32), cpu=lambda worker, _: 1.0 if worker < 2 else 3.9))["gil-bound"])


@pytest.mark.parametrize(("cpu", "is_locked"), [(1.0, True), (3.8, False), (0.1, False)])
def test_workers_in_the_process_of_the_client_share_one_interpreter_lock(cpu, is_locked, golden):
    run = within_one_process(full(2, 2, gap_s=KEPT_S))
    findings = found(on(run, load(8, ours=0.2), cpu=cpu, workers=1))
    assert ("gil-bound" in findings) == is_locked
    golden(*findings.values())


def test_the_host_load_counts_for_in_process_workers_whatever_host_name_they_report():
    run = within_one_process(on(full(4, 1, gap_s=KEPT_S), load(2, others=0.68), cpu=1.0, workers=1))
    renamed = {**run.tables["workers"], "host": ["10.0.0.9"] * 4}
    findings = found(observed(run.trial, {**run.tables, "workers": renamed}))
    assert list(findings) == ["host-overloaded"]  # another process has the second core, so nothing proves a lock


def test_workers_that_share_one_process_get_the_advice_to_use_processes():
    finding = found(on(within_one_process(full(4, 1, gap_s=KEPT_S)), load(8, ours=0.2), cpu=1.0, workers=1))[
        "gil-bound"
    ]
    assert "processes=True" in finding.remedy


def test_gil_bound_has_lower_confidence_if_the_host_load_is_unknown():
    run = on(full(4, 4, gap_s=KEPT_S), None, cpu=1.0)
    assert found(run)["gil-bound"].confidence < 0.7


# Workers, threads, host, samples and other arguments of `full`, by name. If the lock is free, each next task starts at
# once.
UNLOCKED = {
    **{
        f"they partly wait, {threads} threads, gap {gap_s}": (1, threads, load(4), {"cpu": 1.0}, {"gap_s": gap_s})
        for threads in (2, 4)
        for gap_s in (0.0, 0.001)
    },
    **{
        f"{why}, {workers} workers": (workers, 4, load(16 * workers, ours=min(cpu / 16, 0.9)), {"cpu": cpu}, {})
        for why, cpu in {"release the lock": 3.9, "half releases it": 2.0, "sleep": 0.02, "wait for I/O": 0.5}.items()
        for workers in (1, 4, 20)
    },
    "bursts of four cores": (2, 4, load(16), {"cpu": lambda _, sample: 4.0 if sample % 4 == 0 else 0.05}, {}),
    "one thread each": (4, 1, load(8, ours=0.55), {"cpu": 1.0}, {}),
    "no second core to be had": (1, 4, load(1, ours=0.97), {"cpu": 0.98}, {}),
    # only the first worker of a process has samples; its CPU is that of all of them
    "workers that share a process": (20, 2, load(80), {"cpu": 1.0, "workers": 10}, {}),
    "CPU not recorded": (2, 4, load(8), {"cpu": 0.0}, {}),
}


@pytest.mark.parametrize("case", UNLOCKED)
def test_threads_that_do_not_wait_for_the_lock_are_not_found_as_gil_bound(case):
    workers, threads, host, samples, more = UNLOCKED[case]
    assert "gil-bound" not in found(on(full(workers, threads, **more), host, **samples))


@pytest.mark.parametrize(("late", "is_locked"), [([1, 7], True), ([1, 1, 1, 7], False)])
def test_two_threads_are_found_as_gil_bound_only_if_half_of_their_tasks_start_late(monkeypatch, late, is_locked):
    run = full(1, 2)
    handed = np.tile(np.array(late) / 1000, 20 // len(late))
    monkeypatch.setattr("scalescope.diagnosis.causes.gil_bound.handed_over", lambda observation: handed)
    assert ("gil-bound" in found(on(run, load(4), cpu=1.0))) == is_locked


def test_a_trial_too_short_for_samples_is_judged_by_the_load_of_the_host():
    short = {"seconds": 0.08, "each": 4}
    run = full(1, 3, gap_s=KEPT_S, **short)
    took = {"seconds": run.attempts.makespan}
    finding = found(on(run, load(2, ours=0.5, **took)))["gil-bound"]
    assert finding.confidence < 0.9
    assert finding.evidence[1].source == "facts host.load"
    for host in (load(2, ours=0.95, **took), load(2, ours=0.1, **took), load(8, ours=0.35, **took), None):
        assert "gil-bound" not in found(on(run, host)), host
    assert "gil-bound" not in found(on(full(1, 3, **short), load(2, ours=0.5, **took)))


def test_cpu_time_of_the_driver_does_not_count_as_that_of_the_workers():
    """The client and the scheduler of a local cluster run in the driver, also before and after the tasks."""
    run = full(1, 3, gap_s=KEPT_S, seconds=0.08, each=4)
    took = {"seconds": 1.2 * run.attempts.makespan}
    assert "gil-bound" in found(on(run, load(2, ours=0.75, own=0.33, **took)))
    assert "gil-bound" not in found(on(run, load(2, ours=0.75, **took)))
    assert "gil-bound" not in found(on(run, load(2, ours=0.75, own=0.6, **took)))


def test_without_recorded_cpu_nothing_is_found():
    run = on(full(2, 4), load(8), cpu=1.0)
    del run.tables["memory"]["cpu"]
    assert not found(run)


# ------------------------------------------------------------------ event loops


def starved(workers, *, stall=1.0):
    """Five rounds of tasks known from the first, of 2 s each, `stall` of which nothing is handed out."""
    run = Cluster(workers).run([Task(2.0 - stall) for _ in range(workers * 5)])
    tasks = dict(run.tables["tasks"])
    for name in ("assigned", "start", "stop", "done"):
        tasks[name] = array("d", [value + stall * (row // workers) for row, value in enumerate(tasks[name])])
    return observed(run.trial, {**run.tables, "tasks": tasks})


def stalls(seconds, processes=("scheduler",)):
    """Rows of the table `lag` at the end of each pause of `starved`."""
    return [(process, 2.0 * turn + 2.0, seconds) for turn in range(4) for process in processes]


BLOCKED = {
    **{
        f"scheduler, {workers} workers, {stall} s": (workers, stall, ["scheduler"], stall, stall * workers)
        for stall in (0.3, 1.0, 1.5)
        for workers in (1, 4, 40)
    },
    **{
        f"{workers} workers": (workers, 1.0, [f"tcp://10.0.0.{i}:4000" for i in range(workers)], 0.9, 0.9 * workers)
        for workers in (1, 4, 40)
    },
    "one of 4 workers": (4, 1.0, ["tcp://10.0.0.1:4000"], 1.0, 1.0),
}


@pytest.mark.parametrize("case", BLOCKED)
def test_a_blocked_event_loop_of_scheduler_or_workers_is_found(case, golden):
    workers, stall, processes, seconds, lost_s = BLOCKED[case]
    lag = stalls(seconds, processes)
    finding = only(found(on(starved(workers, stall=stall), load(), lag=lag)), "event-loop-blocked")
    assert finding.lost_s == pytest.approx(4 * lost_s, rel=0.35)
    golden(*[finding] * (workers < 40 and stall in (0.3, 1.0)))


@pytest.mark.parametrize(("collecting", "named"), [(0.0, False), (0.1, False), (0.28, True)])
def test_garbage_collections_of_a_blocked_scheduler_are_named(collecting, named):
    lag = stalls(0.3)
    seen = on(starved(4, stall=0.3), load(), lag=lag)
    rows = [{"worker": "scheduler", "time": EPOCH + 2.0 * i + 2.0, "collecting": collecting} for i in range(4)]
    seen = observed(seen.trial, {**seen.tables, "memory": from_rows("memory", rows)})
    finding = found(seen)["event-loop-blocked"]
    assert ("Garbage collections took 1.1" in finding.summary) is named
    assert ("fewer and larger tasks" in finding.remedy) is named


@pytest.mark.parametrize(("process", "blocked"), [("tcp://10.0.0.0:4000", False), ("scheduler", True)])
def test_workers_blocked_by_writing_results_to_disk_are_not_found_as_blocked_event_loop(process, blocked):
    seen = on(starved(1), load(), lag=[(process, 2.0 * turn + 2.0, 0.9) for turn in range(4)])
    row = {"context": "memory-monitor", "activity": "disk-write", "unit": "seconds", "value": 3.6}
    fine = {"fine_metrics": from_rows("fine_metrics", [row])}
    assert ("event-loop-blocked" in found(observed(seen.trial, {**seen.tables, **fine}))) is blocked


@pytest.mark.parametrize("workers", [1, 4])
def test_late_samples_reveal_workers_with_a_blocked_event_loop(workers):
    """Their system monitor runs on the loop; every fourth sample is a second late."""
    run = starved(workers)
    late = on(run, load(), cpu=0.5, late=lambda _, sample: 1.0 if sample % 3 == 2 else 0.0)
    assert list(found(late)) == ["event-loop-blocked"]
    assert not found(on(run, load(), cpu=0.5, late=lambda _, sample: 0.05 * (sample % 3)))
    often = on(run, load(), cpu=0.5, late=lambda _, sample: 1.0 if sample % 3 else 0.0)
    assert list(found(often)) == ["event-loop-blocked"]


def test_short_stalls_on_a_host_filled_by_others_are_not_found():
    run = starved(4, stall=0.3)
    assert "event-loop-blocked" not in found(on(run, load(4, ours=0.4, others=0.58), lag=stalls(0.3)))


@pytest.mark.parametrize(("computes", "code"), [(True, "gil-bound"), (False, "event-loop-blocked")])
def test_a_stall_of_one_shared_process_is_found_as_gil_bound_if_tasks_ran_meanwhile(computes, code):
    """If tasks ran during the stall, they may have held the interpreter lock; otherwise the event loop was blocked."""
    run = within_one_process(starved(4))
    tables = dict(run.tables)
    if computes:  # one of four in each round ends with the stall
        long = dict(tables["tasks"])
        for name in ("stop", "done"):
            long[name] = array("d", [time + (row % 4 == 0) for row, time in enumerate(long[name])])
        tables["tasks"] = long
    lag = stalls(0.95)
    finding = only(found(on(observed(run.trial, tables), load(), lag=lag)), code)
    assert ("processes=True" in finding.remedy) is computes


def test_a_function_that_the_client_ran_on_the_scheduler_is_named(golden):
    run = starved(4)
    call = {"time": EPOCH, "seconds": 9.0, "where": "job.py:7 main", "what": "client.run_on_scheduler", "waits": 1}
    run = observed(run.trial, {**run.tables, "client": from_rows("client", [call])})
    lag = stalls(1.0)
    golden(found(on(run, load(), lag=lag))["event-loop-blocked"])


# ------------------------------------------------------------------ threads and cores


@pytest.mark.parametrize(("workers", "cpus"), [(1, 4), (4, 16), (8, 16)])
def test_thread_pools_inside_tasks_are_found_as_oversubscribed_threads(workers, cpus, golden_once):
    run = on(full(workers, 1), load(cpus, ours=0.95, others=0.01), cpu=0.95 * cpus / workers)
    golden_once(only(found(run), "oversubscribed-threads"))


@pytest.mark.parametrize(("workers", "threads", "cpus"), [(8, 1, 2), (4, 4, 4), (32, 2, 16)])
def test_more_task_threads_than_cores_are_found_as_oversubscribed(workers, threads, cpus, golden_once):
    run = on(full(workers, threads), load(cpus, ours=0.97, others=0.01), cpu=0.97 * cpus / workers)
    finding = golden_once(only(found(run), "oversubscribed-threads"))
    assert finding.lost_s == pytest.approx((workers * threads - 0.97 * cpus) * run.attempts.makespan, rel=0.1)


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"cluster": {"kind": "local"}}, False),  # a sweep that asks how many threads this host bears
        ({"cluster": {"kind": "local"}, "ran": "script"}, True),
        ({"cluster": {"kind": "LocalCluster"}, "ran": "script"}, True),
        ({"cluster": {"kind": "light"}}, True),
    ],
)
def test_too_few_cores_limit_the_trust_in_a_trial_unless_a_sweep_measures_this_very_host(facts, limit):
    few = on(full(8, 1), load(2, ours=0.97, others=0.01), cpu=0.97 * 2 / 8)
    pools = on(full(4, 1), load(16, ours=0.95, others=0.01), cpu=3.8)  # threads of libraries limit no trust
    for run, expected in ((few, limit), (pools, False)):
        seen = observed(replace(run.trial, facts={**run.trial.facts, **facts}), run.tables)
        assert only(found(seen), "oversubscribed-threads").limits_trust is expected


@pytest.mark.parametrize(("core_wait_s", "named"), [(0.0, True), (0.2, False), (8.0, True)])
def test_a_full_host_is_found_only_if_tasks_may_have_lacked_a_core(core_wait_s, named):
    """Linux tells how long tasks lacked a core; without that, tasks that sleep may have wanted one."""
    run = on(full(4, 1), load(4, ours=0.1, others=0.88), cpu=0.05)
    workers = {**run.tables["workers"], "core_wait_s": [core_wait_s] * 4}
    assert ("host-overloaded" in found(observed(run.trial, {**run.tables, "workers": workers}))) is named


@pytest.mark.parametrize(("host", "doubted"), [(load(4, ours=0.4, others=0.58), True), (load(), False)])
def test_event_loop_stalls_on_a_host_filled_by_others_are_reported_as_uncertain(host, doubted):
    lag = stalls(1.0)
    finding = found(on(starved(4), host, lag=lag))["event-loop-blocked"]
    assert finding.summary.startswith(PERHAPS) is doubted
    assert finding.severity is (Severity.INFO if doubted else Severity.HIGH)


def elsewhere(run, cores, process_threads=20, hosts=1):
    """The same trial, with its workers on hosts other than the driver's."""
    workers = dict(run.tables["workers"])
    count = len(workers["worker"])
    workers |= {"cores": [cores] * count, "process_threads": [process_threads] * count}
    workers |= {"host": [f"node{worker % hosts}" for worker in range(count)]}
    return observed(replace(run.trial, facts={"host": {"hostname": "h"}}), {**run.tables, "workers": workers})


@pytest.mark.parametrize("hosts", [1, 2, 8])
@pytest.mark.parametrize(("cpu", "process_threads"), [(0.5, 75), (0.2, 75), (0.5, 20)])
def test_oversubscription_is_found_on_workers_of_other_hosts(hosts, cpu, process_threads):
    """Eight tasks on four cores of each host, whose libraries start eight threads each, or none."""
    run = on(full(8 * hosts, 1), None, cpu=cpu)
    findings = found(elsewhere(run, 4, process_threads, hosts))
    assert list(findings) == (["oversubscribed-threads"] if cpu == 0.5 else [])
    if findings:
        assert ("OMP_NUM_THREADS=1" in findings["oversubscribed-threads"].remedy) is (process_threads == 75)


@pytest.mark.parametrize(
    ("pool", "computing", "named"), [(8, 0.2, True), (8, 0.9, False), (1, 0.2, False)], ids=["pools", "few", "none"]
)
def test_thread_pools_that_share_a_core_with_tasks_are_found_as_oversubscribed(pool, computing, named, golden):
    """Two workers on two cores that others use as well; threads of a pool, not of tasks, use their CPU time."""
    run = on(full(2, 1), load(2, ours=0.5, others=0.48), cpu=0.5)
    workers = {**run.tables["workers"], "pool_threads": [pool] * 2}
    told = {"thread-cpu": computing * 10.0, "thread-noncpu": 20.0 - computing * 10.0}
    metrics = [
        {"context": "execute", "prefix": "parse", "activity": activity, "unit": "seconds", "value": seconds}
        for activity, seconds in told.items()
    ]
    tables = {**run.tables, "workers": workers, "fine_metrics": from_rows("fine_metrics", metrics)}
    findings = found(observed(run.trial, tables))
    assert ("oversubscribed-threads" in findings) is named
    golden(*findings.values())


def test_sleeping_tasks_and_shared_containers_are_judged_by_the_cpu_that_they_really_use():
    assert list(found(on(full(16, 1), load(2, ours=0.4), cpu=0.03))) == ["undersubscribed-threads"]
    assert list(found(elsewhere(on(full(4, 1), None, cpu=2.0), 2))) == ["oversubscribed-threads"]


@pytest.mark.parametrize(
    ("cpu", "each", "modelled", "severity"),
    [
        pytest.param(0.05, 10, False, Severity.INFO, id="tasks wait"),
        pytest.param(0.98, 10, False, Severity.INFO, id="tasks compute"),
        pytest.param(0.05, 20, False, Severity.LOW, id="tasks wait, several times as many"),
        pytest.param(0.98, 20, False, Severity.INFO, id="they need cores, which more threads do not bring"),
        pytest.param(0.05, 20, True, Severity.INFO, id="they sleep in place of computing"),
    ],
)
def test_room_for_more_threads_is_only_information_unless_several_times_as_many_fit(
    cpu, each, modelled, severity, golden
):
    run = on(full(2, 1, each=each), load(8, ours=0.15), cpu=cpu)
    run.trial.facts["modelled"] = modelled
    finding = only(found(run), "undersubscribed-threads")
    assert finding.severity is severity
    golden(*[finding] * (each == 10 or severity is Severity.LOW))


@pytest.mark.parametrize(("limit_mb", "threads"), [(600, 0), (2000, 6), (0, 8)])
def test_no_more_threads_are_advised_than_memory_has_room_for(limit_mb, threads):
    """A worker takes 150 MiB, and 200 MiB more while a task runs."""
    run = on(full(2, 1, each=20), load(8, ours=0.15), cpu=0.05)
    run.trial.facts["cluster"]["memory_limit_mb"] = limit_mb
    samples = run.tables["memory"]
    samples["rss"] = [2**20 * (350 if i % 2 else 150) for i in range(len(samples["worker"]))]
    finding = found(run).get("undersubscribed-threads")
    assert (f"`--nthreads`) to {threads}," in finding.remedy) if threads else finding is None


def test_idle_cores_give_no_advice_for_tasks_that_use_a_gpu():
    run = on(full(2, 1), load(8, ours=0.15), cpu=0.98)
    rows = [
        {"worker": address, "gpu": "GPU-1", "time": EPOCH + at, "utilisation": 0.95, "prefix": "parse"}
        for address in run.measured.addresses
        for at in range(1, 10)
    ]
    assert not found(observed(run.trial, run.tables | {"gpu": from_rows("gpu", rows)}))


# ------------------------------------------------------------------ the host


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (8, 1), (20, 4)])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_host_filled_by_other_processes_is_found_as_overloaded(workers, threads, recorded, golden_once):
    cpus = max(2, workers)
    cpu = min(0.5 * cpus / workers, 0.6) if recorded else None
    host = load(cpus, ours=0.5, others=0.48)
    finding = golden_once(found(on(full(workers, threads), host, cpu=cpu))["host-overloaded"])
    assert finding.severity is Severity.MEDIUM


def test_cpu_time_stolen_by_other_virtual_machines_is_found_as_overload(golden):
    host = load(4, ours=0.6, others=0.05, stolen=0.25)
    golden(found(on(full(4, 1), host, cpu=0.6))["host-overloaded"])


def on_another_host():
    run = on(full(4, 1), load(2, ours=0.3, others=0.69))
    run.trial.facts["host"]["hostname"] = "login-node"
    return run


CHAIN = [Task(1.0, needs=(i - 1,) if i else ()) for i in range(20)]
TWO_STALL = [(process, at, 0.8) for process in ("scheduler", "tcp://10.0.0.1:4000") for at in range(1, 10)]
HEALTHY = {
    **{f"{n} cores": lambda n=n: on(full(n, 1), load(n, ours=0.97, others=0.02), cpu=0.97) for n in (2, 4, 16)},
    "pools in tasks, and idle cores": lambda: on(full(2, 1), load(16, ours=0.5), cpu=4.0),
    "sleeping tasks on two cores": lambda: on(full(16, 1), load(2, ours=0.6), cpu=0.03),
    "containers with cores of their own": lambda: elsewhere(on(full(4, 1), None, cpu=1.0), 2),  # four of eight
    "no task waits for a thread": lambda: on(Cluster(2).run([Task(10.0)] * 2), load(8, ours=0.2), cpu=0.9),
    "a chain on less than a core": lambda: on(Cluster(4).run(CHAIN), load(8), cpu=0.3),
    "a chain on one core": lambda: on(Cluster(1, 4).run(CHAIN), load(8), cpu=1.0),
    "stalls while all threads compute": lambda: on(full(4, 1), load(), lag=TWO_STALL),
    "stalls while nothing waits": lambda: on(Cluster(10).run(CHAIN[:10]), load(), lag=TWO_STALL[:9]),
    "short stalls": lambda: on(starved(4), load(), lag=[("scheduler", i / 2, 0.06) for i in range(20)]),
    "stalls while a graph is taken in": lambda: on(
        starved(4), load(), lag=stalls(1.0), graphs=[(2.0 * turn + 1.0, 1.0) for turn in range(4)]
    ),
    "little other load": lambda: on(full(4, 1), load(4, ours=0.9, others=0.06), cpu=0.9),
    "others on a virtual clock": lambda: on(full(4, 1), load(2, ours=0.3, others=0.69), clock="virtual"),
    "others on another host": on_another_host,
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_machine_that_costs_no_time_is_healthy(case):
    assert not found(HEALTHY[case]())


@pytest.mark.parametrize("cpus", [2, 4, 16, 64])
def test_a_host_with_little_other_load_is_not_overloaded(cpus):
    run = on(full(2, 1), load(cpus, ours=1 / cpus if cpus > 2 else 0.3, others=1 / cpus), cpu=0.5)
    assert "host-overloaded" not in found(run)


# ------------------------------------------------------------------ nothing to look at


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (4, 2), (50, 1)])
def test_computing_tasks_with_enough_cores_are_healthy(workers, threads, seed):
    rng = random.Random(seed)
    tasks = [Task(rng.lognormvariate(0, 0.2)) for _ in range(workers * threads * 8)]
    cpus = 2 * workers * threads
    run = Cluster(workers, threads, gap_s=0.003).run(tasks)
    lag = [("scheduler", moment, rng.uniform(0, 0.08)) for moment in range(9)]
    observation = on(run, load(cpus, ours=0.51), cpu=lambda *_: threads * rng.uniform(0.9, 1.02), lag=lag)
    assert not found(observation)
