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


@case("too-few-partitions", 8, "light", near="sequential-graph fewer-items-than-workers")
@remedy("--dask_npartitions", npartitions=16)
def three_no_ops(client, n_items: int = 64, npartitions: int = 0):
    """[Bug]: Dask runner limited to 100 concurrent tasks, apache/beam#26669."""

    class NoopDoFn(beam.DoFn):
        def process(self, item):
            time.sleep(0.05)
            return [item]

    pipeline = beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions))
    (
        pipeline
        | "Create collection" >> beam.Create(range(n_items))
        | "Noop 1" >> beam.ParDo(NoopDoFn())
        | "Noop 2" >> beam.ParDo(NoopDoFn())
        | "Noop 3" >> beam.ParDo(NoopDoFn())
    )
    pipeline.run().wait_until_finish()


@case("too-few-partitions", 10, "light", near="sequential-graph nested-client")
@remedy("--dask_npartitions=10", npartitions=10)
def map_and_combine(client, items: int = 60, npartitions: int = 0):
    """a first pipeline, from a new user's trial of Scalescope."""

    def work(i):
        time.sleep(0.4)
        return i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        pipeline | beam.Create(range(items)) | beam.Map(work) | beam.CombineGlobally(sum)


@case("too-few-partitions", 10, "light", near="sequential-graph")
@remedy("--dask_npartitions=20", npartitions=20)
def map_alone(client, items: int = 60, npartitions: int = 0):
    """a first pipeline, from a new user's trial of Scalescope (without the Combine)."""

    def work(i):
        time.sleep(0.1)
        return i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        pipeline | beam.Create(range(items)) | beam.Map(work)


@case("too-few-partitions", 30, near="sequential-graph nested-client")
@remedy("--dask_npartitions=30", npartitions=30)
def map_and_combine_simulated(client, items: int = 300, npartitions: int = 0):
    """a first pipeline, from a new user's trial of Scalescope (on the simulated cluster)."""

    def work(i):
        time.sleep(0.2)
        return i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        pipeline | beam.Create(range(items)) | beam.Map(work) | beam.CombineGlobally(sum)


@case("healthy", 8, "light", near="too-few-partitions sequential-graph")
def with_partitions(client, items: int = 32):
    """The Bag Partition is now configurable, apache/beam#33805."""

    def work(i):
        time.sleep(0.5)
        return i

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions=32)) as pipeline:
        pipeline | beam.Create(range(items)) | beam.Map(work)


@case("too-few-partitions", 16, "light", near="uneven-waves")
@remedy("--dask_npartitions=32", npartitions=32)
def inference(client, images: int = 300, npartitions: int = 0):
    """Using Apache Beam with Dask has a scaling limit of 100-200 GPUs, rapidsai/deployment#235 (200 items and more,
    one stage)."""

    def infer(image):
        time.sleep(0.08)
        return image

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        pipeline | beam.Create(range(images)) | beam.Map(infer)


@case("too-few-partitions", 8, "light", near="sequential-graph skewed-tasks")
@remedy("--dask_npartitions=8", npartitions=8)
def months_to_zarr(client, months: int = 24, npartitions: int = 0):
    """Xarray-to-Zarr recipe (open each month, then store), pangeo-forge/pangeo-forge-recipes#614."""

    def open_url(month):
        time.sleep(0.1)
        return month

    def store(month):
        time.sleep(0.1)
        return month

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        (
            pipeline
            | beam.Create(range(months))
            | "OpenURLWithFSSpec" >> beam.Map(open_url)
            | "StoreToZarr" >> beam.Map(store)
        )


@case(("too-few-partitions", "skewed-tasks"), 6, "light", near="sequential-graph straggler")
@remedy("--dask_npartitions=12", npartitions=12)
def group_by_key(client, keys: int = 12, npartitions: int = 0):
    """DaskRunner GBK (group by key, then work on each group), apache/beam#29365."""

    def work(group):
        time.sleep(2.0)
        return group[0]

    with beam.Pipeline(runner=DaskRunner(), options=options(client, npartitions)) as pipeline:
        (pipeline | beam.Create([(i % keys, i) for i in range(5 * keys)]) | beam.GroupByKey() | beam.Map(work))


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


@case(("straggler", "skewed-tasks"), 6, "light", near="too-few-partitions slow-worker data-locality uneven-waves")
@remedy("divide the values of the hot key into parts", largest=15)
def join_with_a_hot_key(client, largest: int = 0, keys: int = 12, hot: int = 90, cold: int = 6):
    """Joining with hot keys gets a pipeline from hours to days, user@beam.apache.org:
    https://www.mail-archive.com/user@beam.apache.org/msg01892.html."""

    def join(group):
        key, values = group
        time.sleep(0.2 * len(values))
        return key, values

    def undo_grouping(group):
        key, values = group
        return [(key, value) for value in values]

    groups = []
    for key in range(keys):
        values = list(range(cold if key else hot))
        size = largest or len(values)
        groups += [(key, values[i : i + size]) for i in range(0, len(values), size)]
    with beam.Pipeline(runner=DaskRunner(), options=options(client, len(groups))) as pipeline:
        pipeline | "groups" >> beam.Create(groups) | "join" >> beam.Map(join) | "undo" >> beam.FlatMap(undo_grouping)


@case("healthy", 8, "light", near="too-few-partitions narrow-stage sequential-graph tiny-tasks")
def pipeline_that_reads_and_filters(client, files: int = 48, seconds: float = 1.0):
    """Initial DaskRunner for Beam (a pipeline becomes bags; here one with enough partitions), apache/beam#22421."""

    def read(file):
        time.sleep(seconds)
        return file, list(range(5))

    def parse(contents):
        file, lines = contents
        return [file + line for line in lines]

    with beam.Pipeline(runner=DaskRunner(), options=options(client, files)) as pipeline:
        (
            pipeline
            | "files" >> beam.Create(range(files))
            | "read" >> beam.Map(read)
            | "parse" >> beam.FlatMap(parse)
            | "even" >> beam.Filter(lambda number: number % 2 == 0)
        )
