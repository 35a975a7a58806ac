"""Defaults of libraries that divide items into partitions.

A rule is named as a cause only where it predicts the partitions that were measured (`matching`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scalescope.model.partition_calls import BAG, CREATE, FROM_PANDAS, PartitionCall


@dataclass(frozen=True)
class PartitionRule:
    """How a library divides items into partitions by default."""

    library: str  # name of the library
    text: str  # the default in words, as the predicate of a sentence that begins with the library
    formula: str  # the number of partitions, as a formula
    size: Callable[[int], int]  # items per partition, from the number of items (at least 1)
    link: str  # address of the discussion or change that introduced it

    def partitions(self, items: int) -> int:
        return math.ceil(items / self.size(items)) if items > 0 else 1


BEAM_OPTION = "pass Beam --dask_npartitions=<number of items>"
# How to get more partitions from each call; "at least N partitions" follows.
CALL_OPTIONS = {
    BAG: "pass `npartitions=` for",
    "dask.bag.read_text": "pass `blocksize=`, or read more files, for",
    "dask.dataframe.from_pandas": "pass `npartitions=` for",
    "dask.dataframe.from_map": "give `from_map` more inputs for",
    "dask.dataframe.read_csv": "pass a smaller `blocksize=` for",
    "dask.dataframe.read_parquet": "write more row groups and pass `split_row_groups=True` for",
}
# How to get fewer partitions from each call: {n} partitions, each {times} times as large.
FEWER_OPTIONS = {
    CREATE: "pass Beam --dask_npartitions={n}",
    BAG: "pass `npartitions={n}`",
    FROM_PANDAS: "pass `npartitions={n}`",
    "dask.bag.read_text": "pass `files_per_partition={times}`, or a larger `blocksize=`",
    "dask.dataframe.from_map": "give each call of the function {times} inputs",
    "dask.dataframe.read_csv": "call `.repartition(npartitions={n})` on what it returns, or read {times} files in each "
    "task (`dask.dataframe.from_map` over lists of paths, with `pandas.concat(map(pandas.read_csv, paths))`)",
    "dask.dataframe.read_parquet": "call `.repartition(npartitions={n})` on what it returns, or write {n} larger files "
    "once (`frame.repartition(npartitions={n}).to_parquet(...)`)",
}
LEAST_BLOCK = 100  # fewest bytes of a block; files that would need smaller blocks are too small to divide
# Start of the names of calls that make arrays, and how to get more chunks from each; "at least N chunks" follows.
ARRAY, CHUNKS = "dask.array.", "pass smaller `chunks=` for"
BAG_OPTION = "pass npartitions= to dask.bag.from_sequence, at least the number of threads"

BEAM_128 = PartitionRule(
    library="Apache Beam",
    text="puts 128 items in a partition",
    formula="ceil(items / max(128, ceil(sqrt(items) / 10))), Apache Beam from 2.63 on",
    size=lambda items: max(128, math.ceil(math.sqrt(items) / 10)),
    link="https://github.com/apache/beam/pull/33805",
)
BAG_ROOT = PartitionRule(
    library="dask.bag.from_sequence",
    text="puts several items in a partition if there are more than 100",
    formula="ceil(items / ceil(sqrt(items) / 10)) above 100 items, dask from mid-2023 on",
    size=lambda items: 1 if items <= 100 else max(1, math.ceil(math.sqrt(items) / math.sqrt(100))),
    link="https://github.com/dask/dask/pull/10294",
)
BAG_100 = PartitionRule(
    library="dask.bag.from_sequence",
    text="cuts 200 items or more into about 100 partitions",
    formula="ceil(items / floor(items / 100)) from 100 items on, dask before mid-2023",
    size=lambda items: 1 if items < 100 else items // 100,
    link="https://github.com/dask/dask/issues/10291",
)
RULES = (BEAM_128, BAG_ROOT, BAG_100)


def matching(counts: Iterable[tuple[int, int]]) -> PartitionRule | None:
    """The rule that predicts every measured pair of items and partitions exactly."""
    pairs = tuple(counts)
    return next(
        (rule for rule in RULES if pairs and all(rule.partitions(items) == found for items, found in pairs)), None
    )


def more(call: PartitionCall, parts: int) -> str:
    """Advice: how to change `call` so that it makes at least `parts` partitions."""
    at = f" at {call.where}" if call.where else ""
    if call.nbytes == 0:
        return (
            f"call `.repartition(npartitions={parts})` on what it returns{at}, before other steps: Dask reads a "
            "compressed file as a whole"
        )
    is_array = call.call.startswith(ARRAY)
    how = CHUNKS if is_array else CALL_OPTIONS.get(call.call, "make")
    if (size := block(call, parts)) is not None:
        how = f"pass `blocksize={size:_}` for"
    return f"{how} at least {parts:,} {'chunks' if is_array else 'partitions'}{at}"


def block(call: PartitionCall, parts: int) -> int | None:
    """Bytes of a block for at least `parts` partitions, rounded down to two digits; None if unknown or too small."""
    if call.nbytes is None or call.nbytes < LEAST_BLOCK * parts:
        return None
    exact = call.nbytes // parts
    unit = int(10 ** (len(str(exact)) - 2))
    return exact // unit * unit


def fewer(call: PartitionCall, times: int) -> tuple[str, int]:
    """Advice: how to make partitions of `call` up to `times` times as large; and how many partitions that leaves."""
    left = max(math.ceil(call.partitions / times), 1)
    if not call.chunk:
        return FEWER_OPTIONS.get(call.call, "make {n} partitions").format(n=left, times=f"{times:,}"), left
    chunk, shape = list(call.chunk), call.shape

    def cuts(axis: int) -> float:
        return shape[axis] / chunk[axis]

    while 2 * math.prod(chunk) <= times * math.prod(call.chunk) and max(map(cuts, range(len(chunk)))) > 1:
        axis = max(range(len(chunk)), key=cuts)
        chunk[axis] = min(2 * chunk[axis], shape[axis])
    return f"make chunks of `{tuple(chunk)}`", math.prod(map(math.ceil, map(cuts, range(len(chunk)))))
