"""Estimates rows and bytes of dataframes from expressions and file statistics; only footers of files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope.checking.sizes import Known, function_name

TEXT = 40.0  # assumed bytes of a string of unknown length
GROUPS = 100  # assumed number of groups of a group-by, if unknown
FIELD = 8.0  # assumed bytes of one field in a row of a text file
DASKS_INDEX = "__null_dask_index__"  # column in which dask writes an index without a name
EMPTY = 700.0  # bytes of a frame without rows: its columns and index


@dataclass(frozen=True)
class Rows:
    """Number of rows of a dataframe, and bytes per row of each column."""

    rows: float
    widths: Mapping[str, float] = field(default_factory=dict)
    told: bool = True

    def nbytes(self, partitions: int) -> Known:
        return Known(self.rows / max(partitions, 1) * sum(self.widths.values()), self.told)


def frame_sizes(expression: Any) -> dict[str, Known]:
    """Bytes of a partition of each dataframe in an expression, by the name in its task keys."""
    known: dict[str, Rows | None] = {}
    found = {}
    for each in expression.walk():
        name, meta = getattr(each, "_name", ""), getattr(type(each), "_meta", None)
        if meta is None or not hasattr(each, "npartitions"):
            continue
        rows = _rows(each, known)
        if rows is not None:
            found[name] = rows.nbytes(each.npartitions)
    return found


def _rows(expression: Any, known: dict[str, Rows | None]) -> Rows | None:
    name = expression._name
    if name not in known:
        known[name] = None
        below = [_rows(each, known) for each in expression.dependencies() if hasattr(each, "npartitions")]
        try:
            known[name] = _of(expression, [each for each in below if each is not None])
        except (AttributeError, TypeError, ValueError, KeyError, NotImplementedError, OSError):
            known[name] = None  # an expression of another library, built differently from Dask's own
    return known[name]


def _of(expression: Any, below: list[Rows]) -> Rows | None:
    kinds = {each.__name__ for each in type(expression).__mro__}
    if not expression.dependencies():
        return _read(expression, kinds)
    if not below:
        return None
    most = max(below, key=lambda each: each.rows)
    if kinds & {"Chunk", "TreeReduce", "ApplyConcatApply", "ShuffleReduce"} or expression.npartitions == 1 < max(
        each.npartitions for each in expression.dependencies() if hasattr(each, "npartitions")
    ):
        return _reduced(expression, most, kinds)
    if "Concat" in kinds:
        return replace(_with_widths(expression, below, most), rows=sum(each.rows for each in below))
    found = _with_widths(expression, below, most)
    if kinds & {"Partitions", "Head", "BlockwiseHead", "Tail"}:
        whole = next(each.npartitions for each in expression.dependencies())
        return replace(found, rows=most.rows * expression.npartitions / max(whole, 1))
    own = kinds & {"Filter", "Merge", "HashJoinP2P", "BroadcastJoin", "BlockwiseMerge", "MapPartitions", "DropnaFrame"}
    return replace(found, told=False) if own else found


def _with_widths(expression: Any, below: list[Rows], most: Rows) -> Rows:
    before = {name: width for each in below for name, width in each.widths.items()}
    return Rows(most.rows, _widths(expression._meta, before), all(each.told for each in below))


def _widths(meta: Any, before: Mapping[str, float]) -> dict[str, float]:
    if not hasattr(meta, "columns") and not hasattr(meta, "name"):
        return {"": 8.0}
    columns = dict(meta.dtypes.items()) if hasattr(meta, "columns") else {meta.name: meta.dtype}
    index = meta.index if hasattr(meta, "index") else None
    found = {str(name): _width(str(name), kind, before) for name, kind in columns.items()}
    is_range = type(index).__name__ == "RangeIndex"
    return {**found, "(index)": before.get("(index)", 0.0 if is_range or index is None else 8.0)}


def _width(name: str, kind: Any, before: Mapping[str, float]) -> float:
    is_text = str(kind).startswith(("string", "object", "str"))
    return before.get(name, TEXT) if is_text else float(getattr(kind, "itemsize", 8))


def _reduced(expression: Any, most: Rows, kinds: set[str]) -> Rows:
    meta = expression._meta
    is_grouped = any("GroupBy" in each for each in kinds) or hasattr(expression, "by")
    grouped = is_grouped or (hasattr(meta, "index") and getattr(meta.index, "name", None) is not None)
    whole = 0 if not grouped else min(most.rows, GROUPS)
    rows = max(whole, 1) * expression.npartitions
    widths = {**_widths(meta, most.widths), "(empty)": EMPTY if hasattr(meta, "index") and not grouped else 0.0}
    return Rows(rows, widths, told=not grouped)


def _read(expression: Any, kinds: set[str]) -> Rows | None:
    meta = expression._meta
    if "FromPandas" in kinds:
        frame = expression.frame
        frame = getattr(frame, "_data", frame)
        sample = frame.iloc[:: max(len(frame) // 1_000, 1)]
        used = sample.memory_usage(deep=True)
        sizes = {"": used} if not hasattr(used, "items") else dict(used.items())
        each = {str(name): size / max(len(sample), 1) for name, size in sizes.items() if name != "Index"}
        index = 0.0 if type(frame.index).__name__ == "RangeIndex" else sizes.get("Index", 0.0) / max(len(sample), 1)
        wanted = _widths(meta, each)
        return Rows(len(frame), {name: each.get(name, width) for name, width in wanted.items()} | {"(index)": index})
    if "ReadParquet" in kinds:
        return _parquet(expression, meta)
    if "Timeseries" in kinds:
        ends = expression.divisions
        frequency = expression.operand("freq")
        import pandas

        rows = (ends[-1] - ends[0]) / pandas.Timedelta(pandas.tseries.frequencies.to_offset(frequency))
        return Rows(float(rows), _widths(meta, {"name": 13.4}) | {"(index)": 8.0})
    if "FusedIO" in kinds:
        return _rows(expression.operand("_expr"), {})
    if "FromMap" in kinds:
        return _text_files(expression, meta)
    return None


def _text_files(expression: Any, meta: Any) -> Rows | None:
    tasks = [each for given in expression.operand("iterables") or () for each in given]
    lengths = [each.args[2] for each in tasks if function_name(each) == "read_block_from_file"]
    columns = expression.operand("func").keywords["full_columns"]
    nbytes = sum(length for length in lengths if isinstance(length, int))
    return Rows(nbytes / FIELD / len(columns), _widths(meta, {}), told=False) if nbytes else None


def _parquet(expression: Any, meta: Any) -> Rows | None:
    import pyarrow.parquet

    info = expression._dataset_info
    filesystem = getattr(expression, "fs", None) or info["fs"]
    paths = list(getattr(info.get("ds"), "files", None) or info["all_files"])
    rows, sizes, looked = 0, dict[str, float](), paths[:: max(len(paths) // 10, 1)]
    for path in looked:
        with filesystem.open(path, "rb") if hasattr(filesystem, "open") else filesystem.open_input_file(path) as file:
            footer = pyarrow.parquet.ParquetFile(file).metadata
        rows += footer.num_rows
        for group in range(footer.num_row_groups):
            for column in range(footer.num_columns):
                told = footer.row_group(group).column(column)
                sizes[told.path_in_schema] = sizes.get(told.path_in_schema, 0.0) + told.total_uncompressed_size
    texts = {name: max(size / max(rows, 1), 8.0) + 8.0 for name, size in sizes.items()}
    return Rows(
        rows * len(paths) / len(looked), _widths(meta, texts) | ({"(index)": 8.0} if DASKS_INDEX in sizes else {})
    )
