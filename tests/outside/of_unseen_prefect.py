"""Prefect flows on Dask, collected and labelled when all rules had been written, as `of_unseen.py` was."""

from __future__ import annotations

import sys
import time

import dask
from declare import mends_script, script
from of_prefect import TRIED, crunch, load, on_dask
from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed, wait


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="sequential-graph slow-submission healthy")
@flow(task_runner=on_dask())
def states_returned():
    """Tasks are not running in parallel when using DaskTaskRunner() when using return_state=True,
    prefect-archive/prefect-dask#69."""
    for number in range(10):
        load.submit(number, return_state=True)


@mends_script(states_returned, "no return_state, and one wait")
@flow(task_runner=on_dask())
def states_not_returned():
    wait([load.submit(number) for number in range(10)])


@task
def read_sentences():
    return {str(i): {"text": "This is a sentence", "number": i} for i in range(20_000)}


@task
def count(part, sentences):
    time.sleep(0.1)
    return len(sentences) + part


@script("prefect-overhead", near="gil-bound serialisation-bound transfer-bound tiny-tasks healthy")
@flow(task_runner=on_dask(2, processes=True))
def inputs_hashed_by_each_task():
    """hashed_inputs slowing task execution (a large dictionary as input; the key of the cache is a hash of it),
    PrefectHQ/prefect#3276."""
    wait(count.map(range(16), unmapped(read_sentences.submit())))


@task(cache_policy=NO_CACHE)
def read_and_count(part):
    time.sleep(0.1)
    return len(read_sentences.fn()) + part


@mends_script(inputs_hashed_by_each_task, "read them in the task, and cache_policy=NO_CACHE", factor=1.4)
@flow(task_runner=on_dask(2, processes=True))
def inputs_read_in_the_task():
    wait(read_and_count.map(range(16)))


def run_annotated(slots):
    cluster = {"threads_per_worker": 4, "resources": {"annotation": slots}}
    say_hello_often.with_options(task_runner=on_dask(2, cluster=cluster))()


@flow
def say_hello_often():
    with dask.annotate(resources={"annotation": 1}):
        futures = [load.submit(i) for i in range(16)]
    wait(futures)


@script("worker-restriction", near="gil-bound few-tasks-in-flight undersubscribed-threads healthy")
def one_slot_of_a_resource():
    """Dask annotations not working when connecting to an existing cluster (one `annotation` for a worker of several
    threads), prefect-archive/prefect-dask#47."""
    run_annotated(1)


@mends_script(one_slot_of_a_resource, "as many slots as threads")
def as_many_slots_as_threads():
    run_annotated(4)


IMAGES = [0.4, 0.4, 0.4, 1.6] * 4


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="straggler skewed-tasks uneven-waves narrow-stage")
@flow(task_runner=on_dask())
def each_batch_processed_completely():
    """Add `batch_size` parameter to `Task.map` (a batch is completely processed before the next one),
    PrefectHQ/prefect#2459."""
    for first in range(0, len(IMAGES), 4):
        wait(load.map(range(4), IMAGES[first : first + 4]))


@mends_script(each_batch_processed_completely, "one map", factor=1.3)
@flow(task_runner=on_dask())
def all_batches_at_once():
    wait(load.map(range(len(IMAGES)), IMAGES))


def ask(i, stalls):
    TRIED[i] = TRIED.get(i, 0) + 1
    for _ in range(30 if stalls and TRIED[i] == 1 else 3):
        time.sleep(0.1)
    return i


asked = task(ask, name="ask", timeout_seconds=1.5, retries=2)


@script("retried-tasks", near="healthy waiting-tasks straggler skewed-tasks")
@flow(task_runner=on_dask())
def stalled_until_the_timeout():
    """Timeout behavior does not apply when tasks are submitted (a timeout for each task, and retries),
    PrefectHQ/prefect#10926."""
    wait(asked.map(range(12), unmapped(True)))


@mends_script(stalled_until_the_timeout, "a service that answers", factor=2)
@flow(task_runner=on_dask())
def answered_at_once():
    wait(asked.map(range(12), unmapped(False)))


@script("healthy", near="results-awaited-in-loop unfinished-tasks few-tasks-in-flight prefect-overhead")
@flow(task_runner=on_dask())
def results_as_they_come():
    """Add `as_completed` utility for `PrefectFuture`s, PrefectHQ/prefect#14241."""
    total = 0
    for future in as_completed(crunch.map(load.map(range(16)))):
        total += future.result()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
