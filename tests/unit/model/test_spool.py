"""The file of raw records: what is written is read; damage and truncation are said."""

from __future__ import annotations

import io
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalescope.errors import CaptureError
from scalescope.model import spool
from scalescope.model.records import TABLES

RANGES = {"b": 2**7, "i": 2**31, "q": 2**63}


def cells(kind: str) -> st.SearchStrategy[Any]:
    if kind == "str":
        return st.text(max_size=8) | st.sampled_from(["inc", "sum", "tcp://10.0.0.1:4000"])
    if kind in RANGES:
        return st.integers(-RANGES[kind], RANGES[kind] - 1)
    return st.floats(width=32 if kind == "f" else 64, allow_nan=False)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[str, spool.Columns]:
    table = draw(st.sampled_from(sorted(TABLES)))
    rows = draw(st.integers(0, 4))
    columns = spool.empty(table)
    for name, kind in TABLES[table].items():
        columns[name].extend(draw(st.lists(cells(kind), min_size=rows, max_size=rows)))
    return table, columns


def events(count: int = 3) -> spool.Columns:
    return {"time": array("d", range(count)), "topic": ["all"] * count, "message": [str(i) for i in range(count)]}


def write(path: Path, *written: tuple[str, spool.Columns]) -> list[int]:
    with path.open("wb") as stream:
        return [spool.write_chunk(stream, table, columns) for table, columns in written]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(chunks(), max_size=3))
def test_what_is_written_is_read_with_the_chunks_of_a_table_joined(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, spool.Columns]]
) -> None:
    path = tmp_path_factory.mktemp("spool") / "trial.spool"
    sizes = write(path, *written)
    expected: dict[str, spool.Columns] = {}
    for table, columns in written:
        joined = expected.setdefault(table, spool.empty(table))
        for name in columns:
            joined[name] = joined[name] + columns[name]
    assert spool.read(path) == expected
    assert path.stat().st_size == sum(sizes)


def test_keys_may_hold_any_character(tmp_path: Path) -> None:
    texts = ["", "a\nb", "\0", "\ud800", "é" * 3, "('x', 1)"]
    columns = {"time": array("d", bytes(8 * 6)), "topic": texts, "message": texts[::-1]}
    write(tmp_path / "x", ("events", columns))
    assert spool.read(tmp_path / "x")["events"] == columns


def test_text_that_repeats_is_stored_once() -> None:
    def size(topics: list[str]) -> int:
        columns = {"time": array("d", bytes(8 * 1000)), "topic": topics, "message": [""] * 1000}
        return spool.write_chunk(io.BytesIO(), "events", columns)

    repeated = size(["tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"] * 500)
    assert repeated < size([f"tcp://10.0.0.1:{port}" for port in range(1000)]) / 2


def test_a_file_of_a_machine_of_the_other_byte_order_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"worker": ["tcp://10.0.0.1:4000"], "name": ["0"], "host": ["é"], "reason": [""]}
    numbers = {"nthreads": array("i", [3]), "joined": array("d", [1.5]), "left": array("d", [0.0])}

    def swapped(column: array[Any]) -> array[Any]:
        copy = column[:]
        copy.byteswap()
        return copy

    with monkeypatch.context() as other_machine:
        other_machine.setattr(sys, "byteorder", {"little": "big", "big": "little"}[sys.byteorder])
        lengths_and_blob = spool._joined
        other_machine.setattr(
            spool,
            "_joined",
            lambda texts: [swapped(array("i", map(len, texts))).tobytes(), lengths_and_blob(texts)[1]],
        )
        write(tmp_path / "x", ("workers", text | {name: swapped(column) for name, column in numbers.items()}))
    assert spool.read(tmp_path / "x")["workers"] == text | numbers


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_file_that_ends_within_a_chunk_is_refused_but_its_whole_chunks_can_be_had(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x"
    first, _ = write(path, ("events", events()), ("events", events(5)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CaptureError, match="end within a chunk") as caught:
        spool.read(path)
    assert f"byte {first}" in caught.value.where
    assert spool.read(path, partial=True) == {"events": events()}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 500))
def test_no_truncation_is_taken_for_the_end(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    stream = io.BytesIO()
    boundaries = {0}
    for count in (3, 40):
        spool.write_chunk(stream, "events", events(count))
        boundaries.add(stream.tell())
    path = tmp_path_factory.mktemp("spool") / "x"
    path.write_bytes(stream.getvalue()[:length])
    if path.stat().st_size in boundaries:
        spool.read(path)
    else:
        with pytest.raises(CaptureError):
            spool.read(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, ("events", events(100)))
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 0x10
    path.write_bytes(raw)
    with pytest.raises(CaptureError, match="damaged"):
        spool.read(path, partial=True)


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\nworld\n")
    with pytest.raises(CaptureError, match="damaged"):
        spool.read(tmp_path / "x")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be read"):
        spool.read(tmp_path / "nothing")


def test_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, ("events", events()))
    path.write_bytes(path.read_bytes().replace(b'"spool":1', b'"spool":9'))
    with pytest.raises(CaptureError) as caught:
        spool.read(path)
    assert "format 9" in caught.value.cause


@pytest.mark.parametrize(
    ("table", "change", "says"),
    [
        ("nothing", {}, "no table 'nothing'"),
        ("events", {"message": ["a"]}, "unequal lengths"),
        ("events", {"time": array("f", [0.0] * 3)}, "type 'd', got 'f'"),
        ("events", {"extra": ["a"] * 3}, "needs the columns"),
    ],
)
def test_columns_that_are_not_those_of_the_table_are_refused(table: str, change: spool.Columns, says: str) -> None:
    stream = io.BytesIO()
    with pytest.raises(CaptureError, match=says):
        spool.write_chunk(stream, table, events() | change)
    assert stream.getvalue() == b""
