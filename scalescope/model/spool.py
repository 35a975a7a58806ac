"""An append-only file of column chunks: how raw records travel from a trial to whoever analyses it.

A chunk belongs to one table of `scalescope.model.records`. It is one line of JSON (table, rows, byte order, columns and
the sizes of their buffers) followed by the buffers, each compressed with zlib, whose checksum detects damage. Numbers
are raw `array.array` items. Text is UTF-8 with an array of lengths, and dictionary-coded where it repeats. Nothing is
pickled, so that any version of this package, on any Python, reads it.

A writer that dies leaves at most one incomplete chunk, at the end.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping
from errno import EDQUOT, EFBIG, ENOSPC
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from scalescope.errors import CaptureError
from scalescope.model.records import TABLES
from scalescope.redaction import hide, knows_any

Columns: TypeAlias = dict[str, Any]
"""Columns by name: an `array.array` of numbers, or a list of text."""

NO_ROOM = frozenset({ENOSPC, EDQUOT, EFBIG})
"""Errors of the system that a disk without room gives, or a limit on what may be written."""

VERSION = 1
_LEVEL = 1  # fast: the spool is written while a trial is measured
_TEXT_ERRORS = "surrogatepass"  # keys are whatever the user made them
_LONGEST_HEADER = 1 << 20


def unwritable(path: Path, cause: object) -> CaptureError:
    """Says that raw records cannot be written there, now or for any other trial: the run ends."""
    error = CaptureError(
        "the raw records of a trial could not be written",
        where=str(path),
        cause=str(cause),
        next_step="make room or fix that folder, or set TMPDIR to another; the same command continues with this trial",
    )
    error.ends_run = True
    return error


def empty(table: str) -> Columns:
    """The columns of a table, without rows."""
    return {name: [] if kind == "str" else array(kind) for name, kind in _contract(table).items()}


def write_chunk(stream: BinaryIO, table: str, columns: Mapping[str, Any]) -> int:
    """Append rows of one table, without the secrets that this process knows.

    Args:
        stream: Opened for appending, in binary.
        table: A key of `records.TABLES`.
        columns: Exactly its columns, all of one length, with its types.

    Returns:
        Bytes written.

    Raises:
        CaptureError: The columns are not those of the table.
        OSError: The stream cannot be written.
    """
    contract = _contract(table)
    rows = _check(table, contract, columns)
    buffers: list[bytes] = []
    described = []
    secret = knows_any()
    for name, kind in contract.items():
        column = columns[name]
        if secret and isinstance(column, list):
            column = [hide(text) for text in column]
        coded, raw = _encode_text(column) if isinstance(column, list) else (False, [column.tobytes()])
        packed = [zlib.compress(buffer, _LEVEL) for buffer in raw]
        described.append({"name": name, "type": kind, "coded": coded, "sizes": [len(buffer) for buffer in packed]})
        buffers += packed
    header = {"spool": VERSION, "table": table, "rows": rows, "order": sys.byteorder, "columns": described}
    data = b"".join([json.dumps(header, separators=(",", ":")).encode(), b"\n", *buffers])
    stream.write(data)
    return len(data)


def read(path: str | Path, *, partial: bool = False) -> dict[str, Columns]:
    """Read a whole file, the chunks of each table concatenated.

    Args:
        path: The file.
        partial: Return what is whole if the file ends within a chunk, as it does when its writer was killed.

    Returns:
        Columns by table; a table without a chunk is missing.

    Raises:
        CaptureError: There is no such file, it ends within a chunk (unless `partial`), or it is damaged.
    """
    path = Path(path)
    tables: dict[str, Columns] = {}
    try:
        with path.open("rb") as stream:
            for table, columns in _chunks(stream, path, partial):
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
            next_step="run the trial again; its records were removed or never written",
        ) from error
    return tables


class _Truncated(Exception):
    """The file ends within a chunk."""


def _chunks(stream: BinaryIO, path: Path, partial: bool) -> Iterator[tuple[str, Columns]]:
    while True:
        begin = stream.tell()
        try:
            line = stream.readline(_LONGEST_HEADER)
            if not line:
                return
            if not line.endswith(b"\n") and len(line) < _LONGEST_HEADER:
                raise _Truncated
            yield _read_chunk(stream, json.loads(line))
        except _Truncated:
            if partial:
                return
            raise CaptureError(
                "the raw records of a trial end within a chunk",
                where=f"{path}, chunk at byte {begin}",
                cause="the process that wrote them was killed, or the disk is full",
                next_step="run the trial again; read with partial=True to see what is whole",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error, CaptureError) as error:
            raise CaptureError(
                "the raw records of a trial are damaged",
                where=f"{path}, chunk at byte {begin}",
                cause=f"{type(error).__name__}: {error}",
                next_step="run the trial again",
            ) from error


def _read_chunk(stream: BinaryIO, header: dict[str, Any]) -> tuple[str, Columns]:
    if header["spool"] != VERSION:
        raise ValueError(f"written in format {header['spool']}; this version reads {VERSION}")
    rows, order = header["rows"], header["order"]
    columns: Columns = {}
    for described in header["columns"]:
        buffers = []
        for size in described["sizes"]:
            packed = stream.read(size)
            if len(packed) < size:
                raise _Truncated
            buffers.append(zlib.decompress(packed))
        columns[described["name"]] = _decode(described["type"], described["coded"], buffers, order)
    found = _check(header["table"], _contract(header["table"]), columns)
    if found != rows:
        raise ValueError(f"the header says {rows} rows, there are {found}")
    return header["table"], columns


def _decode(kind: str, coded: bool, buffers: list[bytes], order: str) -> array[Any] | list[str]:
    if kind != "str":
        (raw,) = buffers
        return numbers(kind, raw, order)
    lengths, blob, *codes = buffers
    values = texts(numbers("i", lengths, order), blob)
    if not coded:
        return values
    return [values[code] for code in numbers("i", codes[0], order)]


def numbers(kind: str, raw: bytes, order: str) -> array[Any]:
    """Numbers of a type from their bytes, in the byte order of the machine that packed them."""
    found = array(kind)
    found.frombytes(raw)
    if order != sys.byteorder:
        found.byteswap()
    return found


def _encode_text(column: list[str]) -> tuple[bool, list[bytes]]:
    """Lengths in characters and the text; where values repeat, of the distinct ones, and a code per row."""
    distinct = {text: code for code, text in enumerate(dict.fromkeys(column))}
    if len(distinct) * 2 > len(column):
        return False, _joined(column)
    return True, [*_joined(list(distinct)), array("i", map(distinct.__getitem__, column)).tobytes()]


def _joined(texts: list[str]) -> list[bytes]:
    return [array("i", map(len, texts)).tobytes(), "".join(texts).encode("utf-8", _TEXT_ERRORS)]


def texts(lengths: array[Any], blob: bytes) -> list[str]:
    """Texts from their lengths in characters, and all of them in one."""
    text = blob.decode("utf-8", _TEXT_ERRORS)
    if sum(lengths) != len(text):
        raise CaptureError("the lengths of a text column do not add up")
    return [text[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]


def _contract(table: str) -> dict[str, str]:
    try:
        return TABLES[table]
    except KeyError:
        raise CaptureError(f"there is no table {table!r} of raw records; known: {', '.join(TABLES)}") from None


def _check(table: str, contract: Mapping[str, str], columns: Mapping[str, Any]) -> int:
    """Check names, types and lengths; return the number of rows."""
    if contract.keys() != columns.keys():
        raise CaptureError(f"table {table!r} needs the columns {list(contract)}, got {list(columns)}")
    for name, kind in contract.items():
        column = columns[name]
        found = "str" if isinstance(column, list) else column.typecode
        if found != kind:
            raise CaptureError(f"column {name!r} of table {table!r} has type {kind!r}, got {found!r}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise CaptureError(f"the columns of table {table!r} have unequal lengths: {sorted(lengths)}")
    return lengths.pop()
