"""Workloads of Apache Beam on Dask that bring records together: by key, in sums, and with side inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._beam import BeamPartitions, run_pipeline
from scalescope.workloads._common import check_same, fresh, partitions
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

Records = Annotated[int, Parameter("Records.", minimum=1)]
Size = Annotated[int, Parameter("Bytes of each record.", minimum=1)]
Keys = Annotated[int, Parameter("Different keys.", minimum=1)]
made = partial(workload, packages=("apache-beam", "dask"), extra="beam")


@made("beam-group-by-key", stresses="a shuffle of records, by their size")
def beam_group_by_key(
    client: Client, *, items: Records = 1_000, size: Size = 1_000, keys: Keys = 50, npartitions: BeamPartitions = 8
) -> dict[str, Any]:
    """GroupByKey of records, equally many for each key, with Apache Beam."""
    return _grouped(client, items, size, keys, 0, npartitions)


@made("beam-hot-key", stresses="one key that has most of the records")
def beam_hot_key(
    client: Client,
    *,
    items: Records = 1_000,
    size: Size = 1_000,
    keys: Keys = 50,
    hot: Annotated[int, Parameter("Percentage of the records that have the same key.", minimum=0, maximum=100)] = 80,
    npartitions: BeamPartitions = 8,
) -> dict[str, Any]:
    """GroupByKey of records that mostly have the same key, with Apache Beam."""
    return _grouped(client, items, size, keys, hot, npartitions)


@made("beam-co-group-by-key", stresses="a join: two collections in one shuffle")
def beam_co_group_by_key(
    client: Client, *, items: Records = 500, size: Size = 1_000, keys: Keys = 50, npartitions: BeamPartitions = 8
) -> dict[str, Any]:
    """CoGroupByKey of two collections, with Apache Beam."""

    def build(beam: Any, pipeline: Any) -> None:
        token, sides = fresh(), {}
        for side, count in (("left", items), ("right", 2 * items)):
            numbers = pipeline | f"create {side}" >> beam.Create(range(count))
            sides[side] = numbers | f"make {side}" >> beam.Map(record, size, keys, 0, token)
        sides | beam.CoGroupByKey() | "count" >> beam.Map(counts_of_both)

    got = run_pipeline(client, build, partitions(items, npartitions, None))
    left, right = (Counter(number % keys for number in range(count)) for count in (items, 2 * items))
    check_same(sorted(map(tuple, got)), [(key, left[key], right[key]) for key in sorted(right)])
    return {"items": items, "keys": len(right)}


@made("beam-combine", stresses="sums by key that begin before the shuffle")
def beam_combine(
    client: Client,
    *,
    items: Records = 2_000,
    keys: Keys = 5,
    fanout: Annotated[int, Parameter("Parts into which the sum of each key is divided.", minimum=1)] = 4,
    npartitions: BeamPartitions = 8,
) -> dict[str, Any]:
    """CombinePerKey in two steps, the first for parts of a key, with Apache Beam.

    Beam's own `with_hot_key_fanout` fails on its Dask runner, which does not keep tagged outputs apart.
    """

    def build(beam: Any, pipeline: Any) -> None:
        (
            pipeline
            | "create" >> beam.Create(range(items))
            | "make" >> beam.Map(numbered, keys, fanout, fresh())
            | "sum parts" >> beam.CombinePerKey(sum)
            | "drop parts" >> beam.Map(without_part)
            | "sum" >> beam.CombinePerKey(sum)
        )

    got = run_pipeline(client, build, partitions(items, npartitions, None))
    check_same(sorted(map(tuple, got)), [(key, sum(range(key, items, keys))) for key in range(min(keys, items))])
    return {"items": items}


@made("beam-side-input", stresses="a collection that every partition needs whole")
def beam_side_input(
    client: Client,
    *,
    items: Records = 100,
    beside: Annotated[int, Parameter("Elements of the side input.", minimum=1)] = 100,
    npartitions: BeamPartitions = 8,
) -> dict[str, Any]:
    """ParDo with a side input, with Apache Beam."""

    def build(beam: Any, pipeline: Any) -> None:
        side = pipeline | "create side" >> beam.Create(range(beside))
        numbers = pipeline | "create" >> beam.Create(range(items))
        numbers | "add" >> beam.Map(plus_sum, beam.pvalue.AsIter(side), fresh())

    got = run_pipeline(client, build, partitions(items, npartitions, None))
    check_same(sorted(got), [number + beside * (beside - 1) // 2 for number in range(items)])
    return {"items": items}


def record(number: int, size: int, keys: int, hot: int, token: str) -> tuple[int, bytes]:
    """Key and bytes of a record; the first `hot` of every 100 records have the key 0."""
    return key_of(number, keys, hot), number.to_bytes(8, "big") * (size // 8) + bytes(size % 8)


def key_of(number: int, keys: int, hot: int) -> int:
    return 0 if number % 100 < hot else number % keys


def numbered(number: int, keys: int, parts: int, token: str) -> tuple[tuple[int, int], int]:
    return (number % keys, number // keys % parts), number


def without_part(total: tuple[tuple[int, int], int]) -> tuple[int, int]:
    (key, _), value = total
    return key, value


def size_of_group(group: tuple[int, Iterable[bytes]]) -> tuple[int, int, int]:
    """The key, its records, and their bytes."""
    key, values = group
    sizes = [len(value) for value in values]
    return key, len(sizes), sum(sizes)


def counts_of_both(group: tuple[int, dict[str, Iterable[bytes]]]) -> tuple[int, int, int]:
    key, sides = group
    return key, len(list(sides["left"])), len(list(sides["right"]))


def plus_sum(number: int, beside: Iterable[int], token: str) -> int:
    return number + sum(beside)


def _grouped(
    client: Client, items: int, size: int, keys: int, hot: int, npartitions: int | str | None
) -> dict[str, Any]:
    def build(beam: Any, pipeline: Any) -> None:
        (
            pipeline
            | "create" >> beam.Create(range(items))
            | "make" >> beam.Map(record, size, keys, hot, fresh())
            | beam.GroupByKey()
            | "measure" >> beam.Map(size_of_group)
        )

    got = run_pipeline(client, build, partitions(items, npartitions, None))
    members = Counter(key_of(number, keys, hot) for number in range(items))
    check_same(sorted(map(tuple, got)), [(key, n, n * size) for key, n in sorted(members.items())])
    return {"items": items, "keys": len(members)}
