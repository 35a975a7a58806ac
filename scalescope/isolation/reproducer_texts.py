"""The texts from which reproducers are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The last line of a script that shows the symptom.
SHOWS = "The symptom shows."
SCRIPT = '''\
"""$title

Run: python reproducer.py (needs $needs). Exit status 1: the symptom shows; 0: it does not.
"""
import logging
import sys
import time

logging.disable(logging.CRITICAL)
${imports}from distributed import Client, LocalCluster, get_task_stream

$config$constants


$functions


if __name__ == "__main__":
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=THREADS, processes=False, dashboard_address=None$options
    ) as cluster, Client(cluster) as client:
        with get_task_stream(client) as stream:
            run(client)
    steps = [(task["worker"], step) for task in stream.data for step in task["startstops"]]
    runs = [(worker, step["start"], step["stop"]) for worker, step in steps if step["action"] == "compute"]
    items, workers, threads, tasks = $items, WORKERS, WORKERS * THREADS, len(runs)
    workers_used = len({worker for worker, _, _ in runs})
    makespan_s = max(stop for _, _, stop in runs) - min(start for _, start, _ in runs)
    work_s = sum(stop - start for _, start, stop in runs)
    efficiency = work_s / (threads * makespan_s)
    print("items  workers  tasks  workers used  makespan s  efficiency")
    print(f"{items:5d}  {workers:7d}  {tasks:5d}  {workers_used:12d}  {makespan_s:10.2f}  {efficiency:10.0%}")
    shows = $condition
    print("The symptom shows." if shows else "The symptom does not show.")
    sys.exit(1 if shows else 0)
'''

_NAP = """\
def nap(item, seconds):
    time.sleep(seconds)
    return item"""

_BEAM = """\
class Nap(beam.DoFn):
    def process(self, element):
        time.sleep(SECONDS)
        yield element


def run(client):
    options = PipelineOptions([f"--dask_client_address={client.scheduler.address}", *OPTIONS])
    with beam.Pipeline(runner=DaskRunner(), options=options) as pipeline:
        elements = pipeline | beam.Create(range(ITEMS))
        for stage in range(STAGES):
            elements = elements | f"stage {stage}" >> beam.ParDo(Nap())"""

_BAG = """\
def run(client):
    bag = dask.bag.from_sequence(range(ITEMS), **OPTIONS)
    for _ in range(STAGES):
        bag = bag.map(nap, seconds=SECONDS)
    client.gather(client.compute(bag))"""

_FUTURES = """\
def run(client):
    futures = range(ITEMS)
    for stage in range(STAGES):
        futures = client.map(nap, futures, seconds=SECONDS, key=f"stage{stage}", pure=False)
    client.gather(futures)"""

_GRAPH = """\
def nap(seconds, *needs):
    time.sleep(seconds)


def run(client):
    workers, futures, sent = sorted(client.nthreads()), [], {}
    for number, (after, pause) in enumerate(SUBMISSIONS):
        client.gather(sent.get(after, []))
        time.sleep(pause)
        first = len(futures)
        for stage, seconds, needs, allowed, _ in (task for task in TASKS if task[4] == number):
            needed, key = [futures[i] for i in needs], f"stage{stage}-{len(futures)}"
            futures.append(client.submit(nap, seconds, *needed, key=key, workers=workers[:allowed] or None))
        sent[number] = futures[first:]
    client.gather(futures)"""


@dataclass(frozen=True)
class WorkloadScript:
    """Parts of the script that depend on the workload."""

    imports: str
    functions: str  # source that defines `run(client)`
    needs: tuple[str, ...]  # distributions to install
    # lines that define the partition options as constants
    partition_lines: Callable[[Mapping[str, int]], list[str]] = lambda partitions: []
    cluster_options: str = ""  # further arguments of the cluster


# Keys are names of workloads.
WORKLOAD_SCRIPTS: Mapping[str, WorkloadScript] = {
    "beam-pardo": WorkloadScript(
        "import apache_beam as beam\n"
        "from apache_beam.options.pipeline_options import PipelineOptions\n"
        "from apache_beam.runners.dask.dask_runner import DaskRunner\n",
        _BEAM,
        ("apache-beam", "dask", "distributed"),
        lambda partitions: [f"OPTIONS = {[f'--dask_{name}={value}' for name, value in partitions.items()]!r}"],
        ', protocol="tcp"',  # without a network protocol, tasks of Beam would share a list
    ),
    "bag-map": WorkloadScript(
        "import dask.bag\n",
        f"{_NAP}\n\n\n{_BAG}",
        ("dask", "distributed"),
        lambda partitions: [f"OPTIONS = {dict(partitions)!r}"],
    ),
    "futures-map": WorkloadScript("", f"{_NAP}\n\n\n{_FUTURES}", ("dask", "distributed")),
    "replay": WorkloadScript("", _GRAPH, ("dask", "distributed")),
}
