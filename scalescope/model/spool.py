"""An append-only file of raw records, in which they travel from a trial to the process that analyses it.

A chunk holds rows of one table: a msgpack mapping of `table`, `rows` and `columns`. The task recorder packs its chunks
on the scheduler (`scalescope.capture.recorder`); they stay unchanged. A column is one of these lists, with buffers
that zlib compressed (its checksum detects damage) and little-endian numbers:

| column | list |
| --- | --- |
| numbers | type code, items |
| numbers in runs | type code, items, length of each run |
| text | `str`, texts joined by NUL |
| text that repeats | `str`, distinct texts joined by NUL, number of each row's text (-1: that of the first column) |

A column that a chunk lacks is zeros or empty texts. A writer that dies leaves at most one incomplete chunk, at the end.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping
from errno import EDQUOT, EFBIG, ENOSPC
from itertools import chain, repeat
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from scalescope.errors import CaptureError
from scalescope.model.records import TABLES, Columns, complete
from scalescope.redaction import hide, knows_any

NO_ROOM = frozenset({ENOSPC, EDQUOT, EFBIG})  # error numbers: full disk, quota, limit of a file's size
_LEVEL = 1  # fast compression, since the spool is written while a trial is measured


def unwritable(path: Path, cause: object) -> CaptureError:
    """The error for raw records that cannot be written to `path`; it ends the run, since no trial could write there."""
    error = CaptureError(
        "the raw records of a trial could not be written",
        where=str(path),
        cause=str(cause),
        next_step="free space there, or set TMPDIR to another folder; then repeat the command, which continues with "
        "this trial",
    )
    error.ends_run = True
    return error


def write_chunk(stream: BinaryIO, table: str, columns: Columns) -> int:
    """Append rows of one table. Returns the bytes written."""
    return append(stream, pack(table, columns))


def append(stream: BinaryIO, chunk: Mapping[str, Any]) -> int:
    """Append a packed chunk, without the secrets that this process knows. Returns the bytes written."""
    if knows_any():
        chunk = {**chunk, "columns": {name: _without_secrets(*column) for name, column in chunk["columns"].items()}}
    data: bytes = msgpack.packb(chunk)
    stream.write(data)
    return len(data)


def read(path: str | Path, *, partial: bool = False) -> dict[str, Columns]:
    """All tables of a file that have a chunk; raises `CaptureError` if it is missing or damaged.

    `partial` allows an incomplete last chunk, which a killed writer leaves.
    """
    tables: dict[str, Columns] = {}
    try:
        for table, columns in _chunks(Path(path), partial):
            if table not in tables:
                tables[table] = columns
                continue
            for name, column in tables[table].items():
                column.extend(columns[name])
    except OSError as error:
        raise CaptureError(
            "the raw records of a trial cannot be read",
            where=str(path),
            cause=str(error),
            next_step="if the file is missing, run the trial again",
        ) from error
    return tables


def pack(table: str, columns: Columns) -> dict[str, Any]:
    """Pack columns of one length and of the types that the table declares."""
    rows = {len(column) for column in columns.values()}
    if len(rows) != 1 or not columns.keys() <= TABLES[table].keys():
        raise ValueError(f"table {table!r} got columns {list(columns)} of lengths {sorted(rows)}")
    return {"table": table, "rows": rows.pop(), "columns": {name: _pack(column) for name, column in columns.items()}}


def unpack(chunk: Mapping[str, Any]) -> tuple[str, Columns]:
    """The name of the table and all columns that it declares."""
    table, rows, columns = chunk["table"], chunk["rows"], Columns()
    for name, kind in TABLES[table].items():
        if packed := chunk["columns"].get(name):
            columns[name] = _texts(packed, rows, columns) if kind == "str" else unpack_numbers(packed, kind)
    if any(len(column) != rows for column in columns.values()):
        raise ValueError(f"expected {rows} rows, got columns of {sorted({len(column) for column in columns.values()})}")
    return table, complete(table, columns, rows)


def unpack_numbers(packed: list[Any], kind: str) -> array[Any]:
    found = array(packed[0])
    found.frombytes(zlib.decompress(packed[1]))
    if sys.byteorder == "big":
        found.byteswap()
    if len(packed) > 2:
        return array(kind, chain.from_iterable(map(repeat, found, unpack_numbers(["i", packed[2]], "i"))))
    return found if found.typecode == kind else array(kind, found)


def _chunks(path: Path, partial: bool) -> Iterator[tuple[str, Columns]]:
    begin = 0
    try:
        with path.open("rb") as stream:
            unpacker = msgpack.Unpacker(stream, max_buffer_size=0)  # 0: no limit
            for chunk in unpacker:
                yield unpack(chunk)
                begin = unpacker.tell()
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, msgpack.UnpackException, zlib.error) as error:
        raise CaptureError(
            "the raw records of a trial are damaged",
            where=f"{path}, chunk at byte {begin}",
            cause=f"{type(error).__name__}: {error}",
            next_step="run the trial again",
        ) from error
    if begin < path.stat().st_size and not partial:
        raise CaptureError(
            "the raw records of a trial are incomplete",
            where=f"{path}, chunk at byte {begin}",
            cause="the process that wrote them was killed, or the disk is full",
            next_step="run the trial again",
        )


def _pack(column: list[str] | array[Any]) -> list[Any]:
    if isinstance(column, array):
        return [column.typecode, _packed_numbers(column)]
    distinct = {text: number for number, text in enumerate(dict.fromkeys(column))}
    if len(distinct) * 2 > len(column):
        return ["str", _packed_texts(column)]
    numbers = array("i", map(distinct.__getitem__, column))
    return ["str", _packed_texts(list(distinct)), _packed_numbers(numbers)]


def _packed_numbers(numbers: array[Any]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), _LEVEL)


def _packed_texts(texts: list[str]) -> bytes:
    joined = "\0".join(text.replace("\0", "\\x00") for text in texts)
    return zlib.compress(joined.encode("utf-8", "backslashreplace"), _LEVEL)


def _texts(packed: list[Any], rows: int, others: Columns) -> list[str]:
    texts = zlib.decompress(packed[1]).decode().split("\0") if rows else []
    if len(packed) == 2:
        return texts
    numbers = unpack_numbers(["i", packed[2]], "i")
    if min(numbers, default=0) >= 0:
        return list(map(texts.__getitem__, numbers))
    first = next(iter(others.values()), texts)
    return [texts[number] if number >= 0 else first[row] for row, number in enumerate(numbers)]


def _without_secrets(kind: str, packed: bytes, *more: bytes) -> list[Any]:
    if kind == "str":
        packed = _packed_texts([hide(text) for text in zlib.decompress(packed).decode().split("\0")])
    return [kind, packed, *more]
