"""Prefect flows on Dask. Sleeps replace what the tasks of the sources do; the shape of each flow is unchanged.

Workers share the process of the flow, for speed, unless the case is about processes.
"""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np
from declare import mends_script, script
from of_adaptive import QUICK, SlowToStart
from prefect import flow, tags, task, unmapped
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency, rate_limit
from prefect.futures import wait
from prefect_dask import DaskTaskRunner


def on_dask(workers: int = 4, processes: bool = False, cluster=None, **options) -> DaskTaskRunner:
    made = {"n_workers": workers, "threads_per_worker": 1, "processes": processes, "dashboard_address": None}
    return DaskTaskRunner(cluster_kwargs={**made, "memory_limit": 0, **(cluster or {})}, **options)


def limit(name: str, slots: int, decay: float = 0.0) -> str:
    name = f"{name}-{time.time_ns()}"
    with get_client(sync_client=True) as client:
        asked = {"name": name, "limit": slots, "slot_decay_per_second": decay}
        client.request("POST", "/v2/concurrency_limits/", json=asked)
    return name


@task
def load(i, seconds=0.5):
    time.sleep(seconds)
    return i


@task
def crunch(x, seconds=0.5):
    time.sleep(seconds)
    return x


# ------------------------------------------------------------------ results asked for too early


@script("results-awaited-in-loop", near="sequential-graph healthy too-few-partitions")
@flow(task_runner=on_dask())
def result_in_a_loop():
    """How do I parallelise? `.submit(i).result()` in the loop, PrefectHQ/prefect#5654 (each call waits)."""
    for i in range(12):
        load.submit(i).result()


@mends_script(result_in_a_loop, "submit all first", factor=2)
@flow(task_runner=on_dask())
def result_after_the_loop():
    for each in [load.submit(i) for i in range(12)]:
        each.result()


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="slow-submission healthy")
@flow(task_runner=on_dask())
def result_between_two_tasks():
    """Investigate if there's a way to optimize DaskTaskRunner (a result as argument of the next task),
    prefect-archive/prefect-dask#61."""
    done = []
    for i in range(8):
        a = load.submit(i)
        done.append(crunch.submit(a.result()))
    wait(done)


@mends_script(result_between_two_tasks, "pass the future itself")
@flow(task_runner=on_dask())
def future_between_two_tasks():
    wait([crunch.submit(load.submit(i)) for i in range(8)])


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="sequential-graph too-few-partitions")
@flow(task_runner=on_dask())
def wait_after_each_pair():
    """DaskTaskRunner: wait() after each submit, PrefectHQ/prefect#15442 (the futures are waited for one by one)."""
    for i in range(0, 12, 2):
        wait([load.submit(i), load.submit(i + 1)])


@mends_script(wait_after_each_pair, "one wait for all")
@flow(task_runner=on_dask())
def wait_once():
    wait([load.submit(i) for i in range(12)])


@script(("sequential-graph", "narrow-stage"), near="results-awaited-in-loop slow-submission healthy")
@flow(task_runner=on_dask())
def waits_for_the_one_before():
    """Tasks chained by wait_for although they need nothing of each other, PrefectHQ/prefect#15904."""
    futures = [load.submit(0)]
    for i in range(1, 12):
        futures.append(load.submit(i, wait_for=futures[-1:]))
    wait(futures)


@mends_script(waits_for_the_one_before, "no wait_for", factor=2)
@flow(task_runner=on_dask())
def waits_for_none():
    wait([load.submit(i) for i in range(12)])


# ------------------------------------------------------------------ the flow itself


@script("client-busy", near="results-awaited-in-loop sequential-graph slow-submission")
@flow(task_runner=on_dask())
def tasks_called_in_the_flow():
    """orion UI shows only up to 4 tasks running (`test1(y)` is called, not submitted), PrefectHQ/prefect#5654."""
    first = load.map(range(4))
    for future in first:
        crunch(future.result())


@mends_script(tasks_called_in_the_flow, "submit these, too")
@flow(task_runner=on_dask())
def tasks_submitted_in_the_flow():
    wait(crunch.map(load.map(range(4))))


@script("slow-submission", near="results-awaited-in-loop few-tasks-in-flight sequential-graph")
@flow(task_runner=on_dask())
def pause_between_submits():
    """Difficulties submitting 3700 tasks in one go (time.sleep between submissions), PrefectHQ/prefect#8579."""
    futures = []
    for i in range(16):
        futures.append(load.submit(i))
        time.sleep(0.4)
    wait(futures)


@mends_script(pause_between_submits, "no pause", factor=2)
@flow(task_runner=on_dask())
def no_pause_between_submits():
    wait(load.map(range(16)))


class Model:
    """A class whose instances take long to pickle."""

    def __init__(self, weights):
        self.weights = weights

    def score(self, i):
        time.sleep(0.1)
        return i


# What Prefect does in each task to look through the object may take longer than sending it.
@script(
    ("slow-submission", "large-graph", "serialisation-bound", "client-busy", "prefect-overhead"),
    near="results-awaited-in-loop",
)
def method_of_a_large_object():
    """Slow dask task creation for complex functions, PrefectHQ/prefect#18191."""
    score = task(Model({i: float(i) for i in range(400_000)}).score, name="score")
    map_and_wait(score, 16)


@mends_script(method_of_a_large_object, "a function, and the object loaded in the task", factor=2)
def function_of_a_small_object():
    map_and_wait(task(Model({}).score, name="score"), 16)


@flow(task_runner=on_dask())
def map_and_wait(function, items):
    wait(function.map(range(items)))


# As above, of the argument.
@script(
    ("large-graph", "serialisation-bound", "slow-submission", "prefect-overhead"),
    near="tiny-tasks results-awaited-in-loop",
)
@flow(task_runner=on_dask(2, processes=True))
def large_argument_in_each_call():
    """How to solve large object warning? (DataFrames as arguments of tasks), PrefectHQ/prefect#12967."""
    table = np.random.default_rng(0).random(3_000_000)
    wait(first_of.map(range(16), unmapped(table)))


@task
def first_of(i, table):
    time.sleep(0.05)
    return float(table[i])


@mends_script(large_argument_in_each_call, "load it in the task", factor=1.4)
@flow(task_runner=on_dask(2, processes=True))
def small_argument_in_each_call():
    wait(first_of.map(range(16), unmapped(np.zeros(100))))


# ------------------------------------------------------------------ Prefect's own time


@task
def inc(x):
    return x + 1


@task
def inc_all(xs):
    return [x + 1 for x in xs]


@script(("prefect-overhead", "tiny-tasks"), near="slow-submission gil-bound")
@flow(task_runner=on_dask(2, processes=True))
def tiny_tasks():
    """Issues with prefect and really small tasks, PrefectHQ/prefect#5977."""
    wait(inc.map(range(80)))


@mends_script(tiny_tasks, "one task for many items", factor=2)
@flow(task_runner=on_dask(2, processes=True))
def tasks_of_many_items():
    wait(inc_all.map([list(range(40))] * 2))


@script(("prefect-overhead", "tiny-tasks"), near="slow-submission healthy")
@flow(task_runner=on_dask(2, processes=True))
def short_tasks():
    """enhance mapping docs (too many small tasks create overhead), PrefectHQ/prefect#17269."""
    wait(load.map(range(60), unmapped(0.005)))


@mends_script(short_tasks, "fewer, longer tasks")
@flow(task_runner=on_dask(2, processes=True))
def fewer_tasks():
    wait(load.map(range(6), unmapped(0.05)))


@task(persist_result=True)
def large_result(i):
    time.sleep(0.02)
    return bytes(30_000_000)


@task(persist_result=False)
def large_result_kept_in_memory(i):
    time.sleep(0.02)
    return bytes(30_000_000)


@script(("prefect-overhead",), near="healthy gil-bound tiny-tasks")
@flow(task_runner=on_dask(2))
def large_results_persisted():
    """slowly when cache for large DataFrame use DaskExecutor, PrefectHQ/prefect#2399."""
    wait(large_result.map(range(6)))


@mends_script(large_results_persisted, "persist_result=False", factor=1.2)
@flow(task_runner=on_dask(2))
def large_results_in_memory():
    wait(large_result_kept_in_memory.map(range(6)))


@script("prefect-server-in-workers", near="results-awaited-in-loop straggler skewed-tasks", without_server=True)
@flow(task_runner=on_dask(2, processes=True))
def a_server_in_each_worker():
    """Require a `PREFECT_API_URL` to start a worker (a temporary server in each process), PrefectHQ/prefect#13942."""
    wait([crunch.submit(load.submit(i).result()) for i in range(4)])


@mends_script(a_server_in_each_worker, "PREFECT_API_URL", factor=2)
@flow(task_runner=on_dask(2, processes=True))
def one_server_for_all():
    wait([crunch.submit(load.submit(i).result()) for i in range(4)])


@script("prefect-server-in-workers", near="straggler skewed-tasks healthy host-overloaded", without_server=True)
@flow(task_runner=on_dask(2, processes=True))
def a_server_in_each_worker_of_a_map():
    """Local Prefect (without a server, every worker begins one), coiled/etl-tpch#3."""
    wait(load.map(range(8)))


@mends_script(a_server_in_each_worker_of_a_map, "PREFECT_API_URL", factor=2)
@flow(task_runner=on_dask(2, processes=True))
def one_server_for_a_map():
    wait(load.map(range(8)))


# ------------------------------------------------------------------ limits and retries


@task
def query(i, name):
    with concurrency(name, occupy=1):
        time.sleep(0.4)
    return i


def run_queries(slots):
    map_queries(limit("database", slots))


@flow(task_runner=on_dask())
def map_queries(name):
    wait(query.map(range(8), unmapped(name)))


@script("waiting-tasks", near="healthy straggler skewed-tasks")
def concurrency_limit():
    """Increase visibility around maxed out concurrency limits, PrefectHQ/prefect#12035."""
    run_queries(1)


@mends_script(concurrency_limit, "a higher limit")
def higher_concurrency_limit():
    run_queries(4)


@flow(task_runner=on_dask())
def map_tagged(name):
    with tags(name):
        wait(load.map(range(8)))


@script("waiting-tasks", near="healthy straggler skewed-tasks")
def tag_limit():
    """Delay transition time for task concurrency slots is still 30 seconds (tags=["10460"], limit 2),
    PrefectHQ/prefect#11379."""
    map_tagged(tag_with(1))


def tag_with(slots):
    name = f"tag-{time.time_ns()}"
    with get_client(sync_client=True) as client:
        client.create_concurrency_limit(tag=name, concurrency_limit=slots)
    return name


@mends_script(tag_limit, "a higher limit")
def higher_tag_limit():
    map_tagged(tag_with(4))


@task
def call_service(i, name):
    rate_limit(name)
    time.sleep(0.1)
    return i


@flow(task_runner=on_dask())
def map_calls(name):
    wait(call_service.map(range(8), unmapped(name)))


@script("waiting-tasks", near="healthy straggler skewed-tasks")
def rate_limited():
    """Dask Executor Task throttling, PrefectHQ/prefect#1090."""
    map_calls(limit("service", 1, decay=1.0))


@mends_script(rate_limited, "a higher rate")
def less_rate_limited():
    map_calls(limit("service", 100, decay=100.0))


TRIED: dict[int, int] = {}


@task(retries=2, retry_delay_seconds=1)
def fetch(i, fails=1):
    TRIED[i] = TRIED.get(i, 0) + 1
    time.sleep(0.2)
    if TRIED[i] <= fails:
        raise OSError("418 I'm a teapot")
    return i


@script("retried-tasks", near="healthy waiting-tasks")
@flow(task_runner=on_dask())
def retry_delay_holds_the_thread():
    """Retrying tasks wait to retry in the TaskRunner, blocking other tasks from running, PrefectHQ/prefect#3516."""
    wait(fetch.map(range(12)))


@mends_script(retry_delay_holds_the_thread, "what raised is mended")
@flow(task_runner=on_dask())
def no_retry():
    wait(fetch.map(range(12), unmapped(0)))


@task(retries=3)
def download(i, fails=2):
    TRIED[i] = TRIED.get(i, 0) + 1
    time.sleep(0.4)
    if TRIED[i] <= fails:
        raise OSError("reset by peer")
    return i


@script("retried-tasks", near="healthy")
@flow(task_runner=on_dask())
def retried_at_once():
    """retry_delay_seconds is ignored for task (retried at once, three times), PrefectHQ/prefect#13764."""
    wait(download.map(range(12)))


@mends_script(retried_at_once, "what raised is mended")
@flow(task_runner=on_dask())
def downloaded_at_once():
    wait(download.map(range(12), unmapped(0)))


# ------------------------------------------------------------------ flows that end too early


@task
def say_hello(name):
    time.sleep(0.5)
    return f"hello {name}"


@script("unfinished-tasks", near="nothing-measured invalid-trials too-short")
@flow(task_runner=on_dask(2))
def submitted_and_forgotten():
    """Add a warning for `PrefectFutures` that haven't been waited, PrefectHQ/prefect#14018."""
    for name in ("arthur", "trillian", "ford", "marvin"):
        say_hello.submit(name)


@mends_script(submitted_and_forgotten, "wait for them", factor=0)
@flow(task_runner=on_dask(2))
def submitted_and_waited_for():
    wait([say_hello.submit(name) for name in ("arthur", "trillian", "ford", "marvin")])


@script("unfinished-tasks", near="nothing-measured invalid-trials healthy")
@flow(task_runner=on_dask(2))
def mapped_and_kept():
    """The flow returns while its futures are pending, PrefectHQ/prefect#16848."""
    futures = say_hello.map(range(8))
    time.sleep(0.7)
    return len(futures)


@mends_script(mapped_and_kept, "wait for them", factor=0)
@flow(task_runner=on_dask(2))
def mapped_and_waited_for():
    wait(say_hello.map(range(8)))


@script("unfinished-tasks", near="healthy straggler")
@flow(task_runner=on_dask(2))
def only_the_first_waited_for():
    """Have a chance to terminate all flow's (concurrent) tasks on flow exit, PrefectHQ/prefect#17867."""
    futures = [load.submit(i) for i in range(8)]
    return futures[0].result()


@mends_script(only_the_first_waited_for, "wait for all", factor=0)
@flow(task_runner=on_dask(2))
def all_waited_for():
    futures = [load.submit(i) for i in range(8)]
    return [each.result() for each in futures]


# ------------------------------------------------------------------ one long task, and a cluster that shrinks


@script(("straggler", "skewed-tasks"), near="healthy uneven-waves")
@flow(task_runner=on_dask())
def one_long_task():
    """DaskTaskRunner does not properly wait for mapped futures (sleeps of 1, 5 and 10 s), PrefectHQ/prefect#17414."""
    wait(load.map([*range(16)], [0.3] * 15 + [4.0]))


@mends_script(one_long_task, "divide the long one")
@flow(task_runner=on_dask())
def no_long_task():
    wait(load.map([*range(24)], [0.4] * 24))


@script("adaptive-scaling", near="results-awaited-in-loop late-workers workers-missing")
@flow(task_runner=on_dask(cluster={"worker_class": SlowToStart}, adapt_kwargs={"minimum": 1, "maximum": 4, **QUICK}))
def adaptive_and_one_by_one():
    """Adaptive SLURM scaling kills workers before compute step runs (Prefect's pipeline), esm-tools/pycmor#267."""
    for i in range(10):
        load.submit(i, 0.1).result()
    wait(load.map(range(16)))


@mends_script(adaptive_and_one_by_one, "a fixed number of workers", factor=1.1)
@flow(task_runner=on_dask(4))
def fixed_and_one_by_one():
    for i in range(10):
        load.submit(i, 0.1).result()
    wait(load.map(range(16)))


# ------------------------------------------------------------------ healthy ones


@script("healthy", near="results-awaited-in-loop slow-submission prefect-overhead prefect-server-in-workers")
@flow(task_runner=on_dask())
def mapped_then_results():
    """Completed tasks from a failing worker are retried (the flow of the comment), PrefectHQ/prefect#12970."""
    load.map(range(24)).result()


@script("healthy", near="results-awaited-in-loop unfinished-tasks")
@flow(task_runner=on_dask())
def only_the_last_kept():
    """DaskTaskRunner issues unexpected "a future was garbage collected" warning, PrefectHQ/prefect#17517."""
    results = []
    for i in range(12):
        first = load.submit(i)
        results.append(crunch.submit(first))
    wait(results)


@script("healthy", near="sequential-graph narrow-stage waiting-tasks")
@flow(task_runner=on_dask())
def stages_by_wait_for():
    """Flows: a stage waits for the one before by wait_for, PrefectHQ/prefect#15909."""
    first = [load.submit(i) for i in range(12)]
    wait([crunch.submit(i, wait_for=first) for i in range(12)])


@script("healthy", near="results-awaited-in-loop")
@flow(task_runner=on_dask())
def waited_for_one_by_one_after_map():
    """DaskTaskRunner: Completed tasks are re-computed when workers die (its loop), PrefectHQ/prefect#15442."""
    for future in load.map(range(24)):
        future.wait()


@task
async def download_image(i):
    await asyncio.sleep(0.5)
    return i


@script("healthy", near="waiting-tasks prefect-overhead prefect-server-in-workers unfinished-tasks")
@flow(task_runner=on_dask())
def async_tasks():
    """Update Dask example (downloads by async tasks), PrefectHQ/prefect#17265."""
    wait(download_image.map(range(24)))


@task(retries=3, retry_delay_seconds=10, persist_result=True)
def careful(i):
    time.sleep(0.5)
    return i


@script("healthy", near="retried-tasks prefect-overhead")
@flow(task_runner=on_dask())
def retries_never_used():
    """task decorator retries dont work when dask worker dies (retries, none needed), PrefectHQ/prefect#5925."""
    wait(careful.map(range(24)))


@flow(task_runner=on_dask())
def map_long_queries(name):
    wait(query.map(range(24), unmapped(name)))


@script(("prefect-overhead", "waiting-tasks"), near="healthy")
def a_slot_for_each_short_task():
    """improve `Manage concurrency` docs (a limit as large as the cluster: asking for slots takes longer than the
    tasks), PrefectHQ/prefect#15088."""
    map_long_queries(limit("roomy", 8))


@mends_script(a_slot_for_each_short_task, "no limit where none is needed")
@flow(task_runner=on_dask())
def no_slot_for_each_short_task():
    wait(load.map(range(24), unmapped(0.4)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
