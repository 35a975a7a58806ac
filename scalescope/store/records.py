"""Raw records of a trial as Parquet files, one per table, in one folder under any address that fsspec takes.

Doubles are stored with byte-stream split and zstd, which is exact; delta-packed integers would be larger or inexact.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from scalescope.errors import StoreError
from scalescope.leases import sync_folder
from scalescope.model.records import TABLES, complete
from scalescope.owner import make_folder, opener
from scalescope.store.failures import explain
from scalescope.store.location import redact

SUFFIX = ".parquet"
_DISTINCT = ("key", "text", "message")  # columns whose texts differ in most rows
Columns = Mapping[str, Any]  # one table: an `array.array`, numpy array or list per column


def write(address: str, tables: Mapping[str, Columns]) -> None:
    """Write all tables of one trial to a folder, replacing its content; a reader sees all of them or none.

    On a local file system the folder is written under another name, flushed to the disk, and renamed. Elsewhere each
    file is uploaded as a whole; readers only use an address after the trial's row in the database names it.
    """
    try:
        encoded = {name: _encode(name, columns) for name, columns in tables.items()}
    except (pa.ArrowException, KeyError, ValueError, OverflowError) as error:
        raise StoreError(
            f"Could not encode the records: {type(error).__name__}: {error}",
            where=redact(address),
            cause="The driver runs another version of Scalescope, or memory ran out.",
            next_step="Use one version of Scalescope here and in the driver's environment.",
        ) from error
    with _explained("write the records", address):
        fs, root = fsspec.core.url_to_fs(address)
        if isinstance(fs, LocalFileSystem):
            _write_folder(Path(root), encoded)
            return
        if fs.exists(root):
            fs.rm(root, recursive=True)
        fs.makedirs(root, exist_ok=True)
        for name, data in encoded.items():
            fs.pipe_file(f"{root}/{name}{SUFFIX}", data)


def names(address: str) -> tuple[str, ...]:
    """The tables that a trial has, in the order of `TABLES`."""
    with _explained("read the records", address):
        fs, root = fsspec.core.url_to_fs(address)
        present = {str(path).rsplit("/", 1)[-1] for path in fs.ls(root, detail=False)}
    return tuple(name for name in TABLES if name + SUFFIX in present)


def read(address: str, table: str) -> dict[str, NDArray[Any] | list[str]]:
    """One table of a trial: a numpy array per column of numbers, a list per column of text."""
    with _explained(f"read the records of {table!r}", address):
        fs, root = fsspec.core.url_to_fs(address)
        data = fs.cat_file(f"{root}/{table}{SUFFIX}")
    try:
        content = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:  # OSError: a page does not match its checksum
        raise StoreError(
            f"Could not read the records of {table!r}: {error}",
            where=redact(address),
            cause="The file is damaged.",
            next_step="Restore the file from a backup; the trial's metrics are still in the database.",
        ) from error
    columns = {
        name: content[name].to_pylist() if kind == "str" else content[name].to_numpy()
        for name, kind in TABLES[table].items()
        if name in content.column_names
    }
    return complete(table, columns, content.num_rows)


def _encode(name: str, columns: Columns) -> bytes:
    declared = TABLES[name]
    if columns.keys() != declared.keys():
        raise ValueError(f"table {name!r} has columns {sorted(columns)}, not {sorted(declared)}")
    arrays = {
        column: pa.array(columns[column], pa.string()) if kind == "str" else pa.array(np.asarray(columns[column], kind))
        for column, kind in declared.items()
    }
    encodings = {
        column: "DELTA_BYTE_ARRAY" if kind == "str" else "BYTE_STREAM_SPLIT"
        for column, kind in declared.items()
        if column in _DISTINCT or kind in "df"
    }
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(arrays),
        buffer,
        compression="zstd",
        write_page_checksum=True,
        compression_level=1,  # higher levels save 3 % at most, and nothing on random keys
        use_dictionary=[column for column in declared if column not in encodings],
        column_encoding=encodings,
    )
    return buffer.getvalue()


def _write_folder(root: Path, files: Mapping[str, bytes]) -> None:
    temporary = root.with_name(f".{root.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
    make_folder(temporary, may_share=True)
    try:
        for name, data in files.items():
            with open(temporary / f"{name}{SUFFIX}", "wb", opener=opener) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(temporary)
        if root.exists():
            shutil.rmtree(root)
        temporary.rename(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for folder in (root.parent, root.parent.parent):
        sync_folder(folder)


@contextmanager
def _explained(doing: str, address: str) -> Iterator[None]:
    where = redact(address)
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(
            f"Could not {doing}: nothing is there",
            where=where,
            cause="The records were moved or deleted, or are on another machine's disk.",
            next_step="Open the store with the address of its records, or on the machine where the trial ran.",
        ) from error
    except ImportError as error:
        raise StoreError(
            f"Could not {doing}: {redact(str(error))}", where=where, next_step="Install the package named above."
        ) from error
    except ValueError as error:  # fsspec: unknown protocol
        raise StoreError(
            f"Could not {doing}: {redact(str(error))}", where=where, next_step="Correct the address of the records."
        ) from error
    except Exception as error:  # each kind of file system has its own errors
        raise explain(error, doing, where) from error
