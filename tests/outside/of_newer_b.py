"""Scripts collected and labelled as those of `of_newer_a.py`: Prefect, adaptive clusters, shapes of graphs, Beam.

The workers share the process of the script, for speed.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

import apache_beam as beam
import dask
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.dask.dask_runner import DaskRunner
from dask import delayed
from declare import mends_script, script
from distributed import Client, as_completed, wait
from of_adaptive import QUICK, cluster, work
from of_newer_a import ask
from of_prefect import crunch, load, on_dask
from of_unseen import local
from prefect import flow, task, unmapped
from prefect.futures import wait as wait_for

# ------------------------------------------------------------------ Prefect on Dask


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="sequential-graph slow-submission healthy")
@flow(task_runner=on_dask())
def each_day_before_the_next():
    """set task dependency (task1 and task2 of a day are to run before those of the next day),
    PrefectHQ/prefect#2221."""
    for day in range(5):
        crunch.submit(load.submit(day)).wait()


@mends_script(each_day_before_the_next, "submit all days, as they need nothing of each other", factor=2)
@flow(task_runner=on_dask())
def all_days_at_once():
    wait_for([crunch.submit(load.submit(day)) for day in range(5)])


@task(retries=30, retry_delay_seconds=0.4)
def index_document(document, calls_per_second):
    time.sleep(0.1)
    ask(calls_per_second)
    return document


@script(("retried-tasks", "waiting-tasks"), near="healthy straggler prefect-overhead skewed-tasks")
@flow(task_runner=on_dask())
def documents_refused_by_the_service():
    """fix: Reduce task concurrency (the rate limit is hit: batches, times tasks, times connections),
    climatepolicyradar/knowledge-graph#503."""
    wait_for(index_document.map(range(16), unmapped(3)))


@mends_script(documents_refused_by_the_service, "a higher rate limit")
@flow(task_runner=on_dask())
def documents_accepted_by_the_service():
    wait_for(index_document.map(range(16), unmapped(1_000_000)))


def records(i):
    time.sleep(0.05)
    return [f"{i} {j} {j * 7919 % 10_007}" for j in range(20_000)]


persisted = task(records, persist_result=True, result_serializer="compressed/pickle")
not_persisted = task(records, name="records-in-memory", persist_result=False)


@script("prefect-overhead", near="healthy gil-bound tiny-tasks serialisation-bound")
@flow(task_runner=on_dask(2))
def large_results_compressed():
    """Rework results to work better with big data (pickled in memory, and serialised once more),
    PrefectHQ/prefect#11738."""
    wait_for(persisted.map(range(8)))


@mends_script(large_results_compressed, "persist_result=False", factor=1.3)
@flow(task_runner=on_dask(2))
def large_results_not_persisted():
    wait_for(not_persisted.map(range(8)))


# ------------------------------------------------------------------ adaptive clusters


def run_steps(adaptive, steps=3):
    with cluster(0 if adaptive else 4) as made, Client(made) as client:
        for _ in range(steps):
            if adaptive:
                made.adapt(minimum=0, maximum=4, **QUICK)
            client.gather(client.map(work, range(12), [0.4] * 12, pure=False))
            time.sleep(0.8)  # it looks at the results


@script(("adaptive-scaling", "late-workers"), near="client-busy workers-missing results-awaited-in-loop")
def adapt_called_before_each_step():
    """Calling "cluster.adapt()" multiple times causes strange behavior (workers are retired and started again),
    dask/distributed#3863."""
    run_steps(adaptive=True)


@mends_script(adapt_called_before_each_step, "a fixed number of workers", factor=1.2)
def as_many_workers_for_all_steps():
    run_steps(adaptive=False)


# ------------------------------------------------------------------ what the client does


def run_datasets(polling):
    with local(4, processes=False) as made, Client(made) as client:
        for _ in range(6):
            futures = client.map(work, range(8), [0.15] * 8, pure=False)
            if polling:
                while not all(future.done() for future in futures):
                    time.sleep(1.0)
            else:
                wait(futures)


@script(("client-busy", "results-awaited-in-loop", "few-tasks-in-flight"), near="client-waits too-few-partitions")
def finished_jobs_asked_for_every_second():
    """make progress of futures based on callbacks (they are polled every second), scikit-hep/coffea#97."""
    run_datasets(polling=True)


@mends_script(finished_jobs_asked_for_every_second, "wait, or as_completed")
def finished_jobs_waited_for():
    run_datasets(polling=False)


def run_meters(at_once, meters=40):
    predict = delayed(work, pure=False)
    with local(4, processes=False) as made, Client(made):
        size = meters if at_once else 5
        for first in range(0, meters, size):
            dask.compute(*[predict(i, 0.4) for i in range(first, first + size)])


@script(("results-awaited-in-loop", "few-tasks-in-flight"), near="uneven-waves narrow-stage client-busy healthy")
def a_compute_for_each_chunk_of_the_list():
    """embarrassingly parallel dask cannot handle large amount of task? (compute in the loop over chunks of a list),
    dask/dask#9693."""
    run_meters(at_once=False)


@mends_script(a_compute_for_each_chunk_of_the_list, "one compute")
def one_compute_for_the_list():
    run_meters(at_once=True)


# ------------------------------------------------------------------ shapes of graphs


def run_foldby(split_every):
    def transform(i):
        time.sleep(0.03)
        return i

    def combine(one, other):
        time.sleep(0.005)  # it merges two sketches
        return one + other

    with local(4, processes=False) as made, Client(made):
        records = db.from_sequence(range(128), npartitions=32).map(transform)
        counts = records.map(lambda i: [(key, i) for key in range(20)]).flatten()
        counts.foldby(0, lambda total, record: total + 1, 0, combine, 0, split_every=split_every).compute()


@script(("narrow-stage", "sequential-graph"), near="straggler too-few-partitions results-awaited-in-loop skewed-tasks")
def one_task_combines_all():
    """Foldby not combining in parallel (a huge sequential task after each partition was reduced), dask/dask#2668."""
    run_foldby(False)


@mends_script(one_task_combines_all, "split_every=4")
def combined_as_a_tree():
    run_foldby(4)


def run_pairs(npartitions):
    def pair_metrics(part):
        for epochs in part["epochs"]:
            time.sleep(0.0005 * epochs**2)
        return part

    with local(4, processes=False) as made, Client(made):
        sources = pd.DataFrame({"epochs": [5] * 72 + [20] * 24})  # some fields were observed more often
        frame = dd.from_pandas(sources, npartitions=npartitions)
        frame.map_partitions(pair_metrics, meta=frame).compute()


@script(("skewed-tasks", "straggler", "too-few-partitions"), near="narrow-stage uneven-waves slow-worker healthy")
def partitions_for_each_core():
    """Dask dataframes poorly partitioned (n_cpu partitions, whatever is in them), askap-vast/vast-pipeline#709."""
    run_pairs(4)


@mends_script(partitions_for_each_core, "smaller partitions", factor=1.3)
def smaller_partitions():
    run_pairs(32)


# ------------------------------------------------------------------ Beam on Dask


@contextmanager
def pipeline_on(workers, npartitions):
    with local(workers, processes=False, protocol="tcp://") as made:
        flags = [f"--dask_client_address={made.scheduler_address}", f"--dask_npartitions={npartitions}"]
        with beam.Pipeline(runner=DaskRunner(), options=PipelineOptions(flags)) as pipeline:
            yield pipeline


def run_rechunk(parts):
    def open_fragment(i):
        time.sleep(0.05)
        return (0 if i % 2 else 1 + i // 2 % 8) * 100 + i // 2 % parts, i  # every other one is of one chunk

    def combine(group):
        chunk, fragments = group
        time.sleep(0.1 * len(list(fragments)))
        return chunk

    with pipeline_on(4, 16) as pipeline:
        (
            pipeline
            | beam.Create(range(80))
            | "open" >> beam.Map(open_fragment)
            | beam.GroupByKey()
            | "combine" >> beam.Map(combine)
        )


@script(("straggler", "skewed-tasks"), near="too-few-partitions sequential-graph narrow-stage uneven-waves")
def fragments_of_one_target_chunk():
    """Potentially (M)VE for 'hanging' during rechunk (many fragments are combined to one chunk),
    pangeo-forge/pangeo-forge-recipes#715."""
    run_rechunk(1)


@mends_script(fragments_of_one_target_chunk, "smaller target chunks", factor=1.3)
def fragments_of_smaller_target_chunks():
    run_rechunk(8)


# ------------------------------------------------------------------ nothing wrong


@script("healthy", near="sequential-graph narrow-stage prefect-overhead results-awaited-in-loop")
@flow(task_runner=on_dask())
def branches_of_a_map():
    """`map` execution bottleneck w/ DaskExecutor (each branch goes on without the others), PrefectHQ/prefect#203."""
    seconds = [0.9, 1.0, 1.1] * 4
    wait_for(crunch.map(load.map(range(12), seconds), seconds))


@script("healthy", near="results-awaited-in-loop few-tasks-in-flight slow-submission client-busy")
def a_search_that_submits_as_results_come():
    """Batch function applications for fast functions (a pattern search: each result brings the next trial),
    eriknw/dask-patternsearch#1."""
    with local(4, processes=False) as made, Client(made) as client:
        search = as_completed(client.map(work, range(8), [0.4] * 8, pure=False), with_results=True)
        for tried, _ in enumerate(search, 8):
            if tried < 40:
                search.add(client.submit(work, tried, 0.4, pure=False))


@script("healthy", near="too-few-partitions sequential-graph narrow-stage uneven-waves")
def chunks_read_and_written():
    """Add Apache Beam executor (a pipeline that reads and writes each chunk), pangeo-data/rechunker#34."""

    def read(chunk):
        time.sleep(0.3)
        return chunk

    def write(chunk):
        time.sleep(0.3)
        return chunk

    with pipeline_on(4, 32) as pipeline:
        pipeline | beam.Create(range(32)) | "read" >> beam.Map(read) | "write" >> beam.Map(write)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
