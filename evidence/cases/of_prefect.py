"""Prefect flows on Dask. Sleeps replace what the tasks of the sources do; the shape of each flow is unchanged.

Workers share the process of the flow, for speed, unless the case is about processes.
"""

from __future__ import annotations

import asyncio
import sys
import time

from declare import mends, script
from prefect import flow, task, unmapped
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import rate_limit
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


@script(("sequential-graph", "narrow-stage"), near="results-awaited-in-loop slow-submission healthy")
@flow(task_runner=on_dask())
def waits_for_the_one_before():
    """Tasks chained by wait_for although they need nothing of each other, PrefectHQ/prefect#15904."""
    futures = [load.submit(0)]
    for i in range(1, 12):
        futures.append(load.submit(i, wait_for=futures[-1:]))
    wait(futures)


@mends(waits_for_the_one_before, "no wait_for", factor=2)
@flow(task_runner=on_dask())
def waits_for_none():
    wait([load.submit(i) for i in range(12)])


# ------------------------------------------------------------------ limits and retries


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


@mends(rate_limited, "a higher rate")
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


@mends(retry_delay_holds_the_thread, "what raised is mended")
@flow(task_runner=on_dask())
def no_retry():
    wait(fetch.map(range(12), unmapped(0)))


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


@mends(submitted_and_forgotten, "wait for them", factor=0)
@flow(task_runner=on_dask(2))
def submitted_and_waited_for():
    wait([say_hello.submit(name) for name in ("arthur", "trillian", "ford", "marvin")])


# ------------------------------------------------------------------ healthy ones


@task
async def download_image(i):
    await asyncio.sleep(0.5)
    return i


@script("healthy", near="waiting-tasks prefect-overhead prefect-server-in-workers unfinished-tasks")
@flow(task_runner=on_dask())
def async_tasks():
    """Update Dask example (downloads by async tasks), PrefectHQ/prefect#17265."""
    wait(download_image.map(range(24)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
