"""Apache Beam pipelines on Dask, run as their users run them: with the address of the cluster as an option."""

from __future__ import annotations

import time

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.dask.dask_runner import DaskRunner
from declare import case, mends, remedy


def options(client, npartitions: int = 0):
    flags = ["--dask_client_address", client.scheduler.address]
    return PipelineOptions(flags + ([f"--dask_npartitions={npartitions}"] if npartitions else []))


@case("too-few-partitions", 10, "light", near="sequential-graph nested-client")
@remedy("--dask_npartitions=10", npartitions=10)
def map_and_combine(client, items: int = 60, npartitions: int = 0):
    """A first pipeline, from a new user's trial of Scalescope."""

    def work(i):
        time.sleep(0.4)
        return i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        pipeline | beam.Create(range(items)) | beam.Map(work) | beam.CombineGlobally(sum)


@case(
    ("a side input that everything waits for", "sequential-graph", "nested-client"),
    6,
    "light",
    near="too-few-partitions straggler",
)
def slow_side_input(client, items: int = 12):
    """Side inputs, Beam programming guide: https://beam.apache.org/documentation/programming-guide/#side-inputs."""

    def read_table(i):
        time.sleep(3.0)
        return i, 2 * i

    def join(item, table):
        time.sleep(0.5)
        return item, dict(table).get(item)

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions=12)) as pipeline:
        table = pipeline | "tables" >> beam.Create([1]) | "read" >> beam.Map(read_table)
        pipeline | "items" >> beam.Create(range(items)) | beam.Map(join, table=beam.pvalue.AsList(table))


@mends(slow_side_input, "read the table where it is used, once for each bundle")
def table_read_in_parts(client, items: int = 12):
    def join(item):
        time.sleep(0.5)
        return item

    def read_table(i):
        time.sleep(3.0 / 6)
        return i, 2 * i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions=12)) as pipeline:
        pipeline | "tables" >> beam.Create(range(6)) | "read" >> beam.Map(read_table)
        pipeline | "items" >> beam.Create(range(items)) | beam.Map(join)
