"""What tasks wait for inside, and overhead around their work."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from support.findings import findings_of, observed, only
from support.inside import inside
from support.small_cluster import Cluster, Task, find

from scalescope.model.finding import Severity
from scalescope.model.records import from_rows

CODES = {"lock-bound", "task-overhead", "undersubscribed-threads"}
found = partial(findings_of, codes=CODES, bounded=CODES)
SLEEP = "job.py:7 load;time.sleep()"
RECEIVE = "job.py:7 load;requests.api.get;urllib3.connection.request;ssl.read;self._sslobj.read()"
PROGRAM = "job.py:7 load;subprocess.run;subprocess.communicate;subprocess._wait;os.waitpid()"
COMPUTE = "job.py:9 load"
LOCK = "job.py:7 load;lock.__enter__()"
IMPORT = "job.py:7 load;importlib._bootstrap._find_and_load;torch.<module>;torch.cuda.<module>"
PICKLE = "job.py:7 load;pickle.load()"


def ran(stacks, *, cpu=0.05, workers=2, each=20, first_s=1.0):
    """A trial whose samples of tasks show these stacks, with their shares."""
    run = Cluster(workers).run([Task(first_s, "load"), *(Task(1.0, "load") for _ in range(workers * each - 1))])
    spent = workers * each
    told = inside({"load": (cpu * spent, (1 - cpu) * spent)}, {s: round(1000 * share) for s, share in stacks.items()})
    facts = {"host": {"hostname": "h"}, "cluster": {"clock": "real"}}
    metrics = replace(run.trial.metrics, elapsed_s=run.attempts.makespan)
    return observed(replace(run.trial, facts=facts, metrics=metrics), {**run.tables, **told})


@pytest.mark.parametrize(
    ("stacks", "cpu"),
    [
        ({}, 0.05),
        ({COMPUTE: 1.0}, 0.98),
        ({COMPUTE: 1.0}, 0.4),  # the rest is the interpreter lock, or a busy host
        ({"job.py:7 load;pandas.core.frame.sort_values;numpy.argsort()": 1.0}, 0.98),
        ({"job.py:7 load;json.loads;json.decoder.decode": 1.0}, 0.98),
        ({COMPUTE: 0.95, LOCK: 0.05}, 0.95),
        ({COMPUTE: 0.95, IMPORT: 0.05}, 0.95),
        ({LOCK: 1.0}, 0.98),  # no profile can say that it waits while it is on a core
        ({"job.py:7 load;distributed.lock.__enter__;distributed.utils.sync;threading.wait;w.acquire()": 1.0}, 0.02),
    ],
)
def test_tasks_that_compute_or_hardly_wait_are_healthy(stacks, cpu):
    assert found(ran(stacks, cpu=cpu)) == {}


def test_library_code_called_by_another_library_counts_as_work():
    """A library that runs the user's function is not blamed for what another library computes in it."""
    stacks = {
        "joblib.parallel.call;job.py:7 load": 0.2,
        "joblib.parallel.call;sklearn.base.fit;sklearn.tree.build()": 0.8,
    }
    assert found(ran(stacks, cpu=0.98)) == {}


# ------------------------------------------------------------------ locks


@pytest.mark.parametrize(
    "call",
    [
        *("lock.__enter__()", "self._lock.acquire()", "fcntl.flock()", "filelock._api.acquire;time.sleep()"),
        *(
            "dask.utils.__enter__;self.lock.__enter__()",
            "dask.array.core.getter;dask.utils.acquire;self.lock.acquire()",
        ),
    ],
)
def test_a_lock_is_named_by_its_call(call, golden):
    run = ran({f"job.py:7 load;{call}": 0.75, SLEEP: 0.25})
    finding = golden(only(found(run), "lock-bound"))  # more threads do not help
    assert finding.lost_s == pytest.approx(0.75 * run.seconds("busy"))


def test_the_time_without_a_lock_is_predicted_from_the_task_that_never_waited():
    run = ran({LOCK: 0.9, SLEEP: 0.1}, first_s=0.25)
    gain = found(run)["lock-bound"].gain
    assert gain.predicted_s == pytest.approx(gain.now_s * 0.25, rel=0.1)


def test_no_gain_is_predicted_where_a_database_serves_one_writer_at_a_time():
    assert found(staggered("job.py:7 load;database.execute()", apart=1.0))["lock-bound"].gain is None
    threads = ran({"job.py:7 load;database.execute()": 1.0}, first_s=0.95)
    finding = only(found(threads), "undersubscribed-threads")
    assert finding.remedy
    assert finding.gain is None


def test_time_lost_to_a_lock_never_exceeds_the_time_that_tasks_were_off_the_cores():
    run = ran({LOCK: 1.0}, cpu=0.6)
    assert found(run)["lock-bound"].lost_s == pytest.approx(0.4 * run.seconds("busy"))


@pytest.mark.parametrize(
    ("error", "is_lock"), [("BlockingIOError", True), ("FileExistsError", True), ("OSError", False)]
)
def test_a_lock_file_of_the_user_is_found_as_a_lock_and_not_as_retries(error, is_lock):
    """A task sleeps between attempts at a lock file, or at `flock` without waiting."""
    run = ran({f"job.py:7 load;time.sleep [after {error}]()": 1.0})
    findings = findings_of(run, {"lock-bound", "retried-tasks"})
    assert list(findings) == (["lock-bound"] if is_lock else ["retried-tasks"])
    assert not is_lock or findings["lock-bound"].gain is None


def staggered(stack, apart):
    """Four tasks run at a time; their ends are `apart` seconds from each other."""
    run = ran({stack: 1.0}, workers=4, each=10, cpu=0.01)
    rows = []
    for i in range(40):
        stop = 1000.0 + (i // 4 * 4 + 4 + i % 4 * apart) * 0.25
        rows.append({"key": f"k{i}", "prefix": "load", "group": "load", "worker": run.attempts.addresses[i % 4]})
        rows[-1] |= {"thread": 1, "assigned": 1000.0, "start": max(stop - 1, 1000.0), "stop": stop, "done": stop}
    return observed(run.trial, {**run.tables, "tasks": from_rows("tasks", rows)})


@pytest.mark.parametrize("stack", ["job.py:7 load;database.execute()", "job.py:7 load;queue.get;threading.wait"])
def test_a_database_or_a_pool_counts_as_a_lock_if_tasks_end_one_by_one(stack):
    assert "lock-bound" in found(staggered(stack, apart=1.0))
    assert "lock-bound" not in found(staggered(stack, apart=0.0))


# ------------------------------------------------------------------ around the work


APPLY = "job.py:7 load;pandas.core.frame.apply;pandas.core.apply.apply_series_generator"
MAKES, TAKES = f"{APPLY};pandas.core.apply.series_generator", f"{APPLY};job.py:3 price;pandas.core.series.__getitem__"
DATES = "job.py:7 load;pandas.core.tools.datetimes.to_datetime;pandas.core.arrays.datetimes.objects_to_datetime64"
ITERATES = "job.py:7 load;pandas.core.frame.iterrows;pandas.core.series.__init__"


@pytest.mark.parametrize(
    ("stacks", "share"),
    [
        pytest.param({MAKES: 0.2, TAKES: 0.7, f"{APPLY};job.py:3 price": 0.1}, 0.9, id="rows"),
        pytest.param({ITERATES: 0.6, "job.py:7 load": 0.4}, 0.6, id="iterrows"),
        pytest.param({TAKES: 1.0}, 0, id="columns"),
        pytest.param({DATES: 1.0}, 0, id="dates that are read at once"),
        pytest.param(
            {MAKES: 0.01, f"{APPLY};job.py:3 price;scipy.optimize.solve": 0.99}, 0, id="the function is the work"
        ),
        pytest.param({"job.py:7 load;pandas.core.groupby.groupby.apply;job.py:3 price": 1.0}, 0, id="groups"),
    ],
)
def test_row_wise_pandas_calls_are_found_as_overhead_if_little_work_is_done_per_row(stacks, share, golden):
    run = ran(stacks, cpu=0.98)
    findings = found(run)
    assert list(findings) == (["task-overhead"] if share else [])
    if share:
        assert golden(findings["task-overhead"]).lost_s == pytest.approx(share * run.seconds("busy"))


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param({IMPORT: 0.95, COMPUTE: 0.05}, id="import"),
        pytest.param({PICKLE: 0.95, COMPUTE: 0.05}, id="pickle"),
        pytest.param({f"{DATES};dateutil.parser._parser.parse": 0.95, COMPUTE: 0.05}, id="dates"),
        pytest.param({"job.py:7 load;boto3.client;boto3.session.client": 0.95, COMPUTE: 0.05}, id="boto3"),
        pytest.param({"job.py:7 load;numba.core.dispatcher._compile_for_args": 0.95, COMPUTE: 0.05}, id="numba"),
        pytest.param({"job.py:7 load;gzip.write;self.compress.compress()": 0.95, COMPUTE: 0.05}, id="gzip"),
        pytest.param({"luigi.worker.run;luigi.worker.log": 0.8, "luigi.worker.run;job.py:7 load": 0.2}, id="framework"),
    ],
)
def test_overhead_inside_tasks_is_named_with_its_remedy(stacks, golden):
    golden(only(found(ran(stacks)), "task-overhead"))


@pytest.mark.parametrize(
    ("first_s", "made_at", "severity"),
    [
        pytest.param(9.0, "job.py:3 <module>", Severity.INFO, id="the script makes the workers that import"),
        pytest.param(9.0, "", Severity.HIGH, id="the workers were there"),
        pytest.param(1.0, "job.py:3 <module>", Severity.HIGH, id="each task imports"),
    ],
)
def test_imports_once_in_each_worker_are_no_fault_of_a_script_that_makes_them(first_s, made_at, severity):
    run = ran({IMPORT: 0.5, COMPUTE: 0.5}, workers=1, each=10, first_s=first_s)
    facts = {**run.trial.facts, "cluster": {"clock": "real", "made_at": made_at}}
    finding = found(observed(replace(run.trial, facts=facts), run.tables))["task-overhead"]
    assert finding.severity is severity
    assert severity is Severity.HIGH or finding.gain is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({}, True, id="each task"),
        pytest.param({"tasks": 4}, False, id="the first tasks of each thread"),
        pytest.param({"tasks": 8}, False, id="a part of the tasks"),
        pytest.param({"reading": 100}, False, id="it computes"),
        pytest.param({"samples": 50, "reading": 50}, False, id="it costs little"),
    ],
)
def test_a_call_that_each_task_repeats_is_found_as_task_overhead(changes, named, golden_once):
    told = {"prefix": "load", "call": "open_model", "arguments": "'m.json', None", "where": "job.py:9 load"}
    told |= {"samples": 700, "reading": 600, "tasks": 36, "processes": 2, "seen": 40, **changes}
    run = ran({COMPUTE: 1.0}, cpu=0.98)
    event = {"time": 0.0, "topic": "same-call", "message": json.dumps(told)}
    findings = found(observed(run.trial, {**run.tables, "events": from_rows("events", [event])}))
    assert ("task-overhead" in findings) == named
    if named:
        assert golden_once(findings["task-overhead"]).lost_s == pytest.approx(0.7 * 40 * (1 - 2 / 36), rel=0.01)


# ------------------------------------------------------------------ the outside


@pytest.mark.parametrize(
    ("stacks", "cpu", "threads"),
    [({SLEEP: 1.0}, 0.05, 8), ({RECEIVE: 1.0}, 0.05, 8), ({SLEEP: 0.6, COMPUTE: 0.4}, 0.4, 3)],
)
@pytest.mark.parametrize(("workers", "each"), [(1, 16), (4, 20), (20, 16)])
def test_more_threads_are_advised_the_more_tasks_sleep_or_wait_for_io(stacks, cpu, threads, workers, each, golden_once):
    finding = golden_once(found(ran(stacks, cpu=cpu, workers=workers, each=each))["undersubscribed-threads"])
    assert finding.severity is Severity.LOW
    assert finding.gain.predicted_s < 0.5 * finding.gain.now_s
    assert finding.gain.change == {"threads_per_worker": threads}


def test_tasks_that_start_programs_have_no_finding_if_the_host_load_is_unknown():
    assert found(ran({PROGRAM: 1.0})) == {}


def test_more_threads_than_tasks_are_not_advised():
    assert found(ran({SLEEP: 1.0}, workers=8, each=1)) == {}
    few = found(ran({SLEEP: 1.0}, workers=8, each=4))
    assert {finding.severity for finding in few.values()} <= {Severity.INFO}


# ------------------------------------------------------------------ coroutine functions

LOOP_CODES = {"event-loop-blocked", "undersubscribed-threads", "gil-bound", "lock-bound", "uneven-waves"}
BLOCKS = "event-loop;job.py:7 load;time.sleep()"


def on_loops(stack, share, *, threads=4):
    """Coroutine functions of half a second, one at a time on each of 2 workers of `threads` threads."""
    run = Cluster(2).run([Task(0.5, "load") for _ in range(80)])
    tables = {**run.tables, **inside({"load": (0.0, 40.0)}, {stack: round(4000 * share)})}
    tables["workers"] = {**tables["workers"], "nthreads": [threads] * 2}
    metrics = replace(run.trial.metrics, elapsed_s=run.attempts.makespan)
    trial = replace(run.trial, point=replace(run.trial.point, threads_per_worker=threads), metrics=metrics)
    return findings_of(observed(replace(trial, facts={"cluster": {"clock": "real"}}), tables), LOOP_CODES)


@pytest.mark.parametrize(
    "call",
    ["time.sleep()", "requests.api.get;urllib3.connection.request;ssl.read;self._sslobj.read()", "lock.acquire()"],
)
@pytest.mark.parametrize("threads", [2, 8])
def test_a_call_that_blocks_the_event_loop_is_named(call, threads, golden):
    findings = on_loops(f"event-loop;job.py:7 load;{call}", 0.95, threads=threads)
    finding = golden(only(findings, "event-loop-blocked"))
    assert finding.lost_s == pytest.approx(0.95 * 40.0 * (threads - 1), rel=0.1)
    assert finding.gain.predicted_s < 0.6 * finding.gain.now_s


@pytest.mark.parametrize("blocked", [False, True])
def test_tasks_that_wait_for_a_blocked_event_loop_are_not_called_too_small(blocked):
    run = Cluster(2, 2, gap_s=0.2).run([Task(0.2, "load") for _ in range(80)])
    tables = {**run.tables, **inside({"load": (0.0, 16.0)}, {BLOCKS if blocked else SLEEP: 1600})}
    assert ("tiny-tasks" in find(observed(run.trial, tables))) is not blocked


@pytest.mark.parametrize(("stack", "threads"), [(BLOCKS, 1), ("event-loop;job.py:7 load", 4)])
def test_no_gain_is_predicted_for_blocking_coroutines_that_compute_or_have_a_single_thread(stack, threads, golden):
    finding = golden(only(on_loops(stack, 0.95, threads=threads), "event-loop-blocked"))
    assert finding.gain is None
    assert threads > 1 or (finding.severity, finding.lost_s) == (Severity.LOW, 0.0)


@pytest.mark.parametrize(("stack", "share"), [(BLOCKS, 0.0), (BLOCKS, 0.02), (SLEEP, 1.0)])
def test_coroutines_that_await_or_plain_functions_that_sleep_do_not_block_the_event_loop(stack, share):
    assert "event-loop-blocked" not in on_loops(stack, share)
