"""The file of raw records: it is read back as written; damage and truncation raise errors."""

from __future__ import annotations

import io
import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalescope.errors import CaptureError
from scalescope.model import spool
from scalescope.model.records import TABLES, Columns, from_rows

RANGES = {"b": 2**7, "i": 2**31, "q": 2**63}


def cells(kind: str) -> st.SearchStrategy[Any]:
    if kind == "str":
        return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
            ["inc", "sum"]
        )
    if kind in RANGES:
        return st.integers(-RANGES[kind], RANGES[kind] - 1)
    return st.floats(width=32 if kind == "f" else 64, allow_nan=False)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[str, Columns]:
    table = draw(st.sampled_from(sorted(TABLES)))
    row = st.fixed_dictionaries({name: cells(kind) for name, kind in TABLES[table].items()})
    return table, from_rows(table, draw(st.lists(row, max_size=4)))


def events(count: int = 3) -> Columns:
    return {"time": array("d", range(count)), "topic": ["all"] * count, "message": [str(i) for i in range(count)]}


def write(path: Path, *written: tuple[str, Columns]) -> list[int]:
    with path.open("wb") as stream:
        return [spool.write_chunk(stream, table, columns) for table, columns in written]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(chunks(), max_size=3))
def test_reading_a_spool_joins_the_chunks_of_each_table(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, Columns]]
) -> None:
    path = tmp_path_factory.mktemp("spool") / "trial.spool"
    sizes = write(path, *written)
    expected: dict[str, Columns] = {}
    for table, columns in written:
        joined = expected.setdefault(table, from_rows(table, ()))
        for name in columns:
            joined[name] = joined[name] + columns[name]
    assert spool.read(path) == expected
    assert path.stat().st_size == sum(sizes)


def test_text_columns_may_hold_any_character(tmp_path: Path) -> None:
    texts = ["", "a\nb", "é" * 3, "('x', 1)", "\0", "\ud800"]
    write(tmp_path / "x", ("events", {"time": array("d", bytes(8 * 6)), "topic": texts, "message": texts[::-1]}))
    found = spool.read(tmp_path / "x")["events"]
    assert found["topic"] == found["message"][::-1] == [*texts[:4], "\\x00", "\\ud800"]


def test_text_that_repeats_is_stored_once() -> None:
    def size(topics: list[str]) -> int:
        columns = {"time": array("d", bytes(8 * 1000)), "topic": topics, "message": [""] * 1000}
        return spool.write_chunk(io.BytesIO(), "events", columns)

    repeated = size(["tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"] * 500)
    assert repeated < size([f"tcp://10.0.0.1:{port}" for port in range(1000)]) / 2


def test_numbers_are_stored_in_little_endian_order() -> None:
    kind, packed = spool.pack("dependencies", {"task": array("i", [1]), "needs": array("i", [0])})["columns"]["task"]
    assert (kind, zlib.decompress(packed)) == ("i", b"\1\0\0\0")


def test_a_missing_column_of_a_chunk_is_filled_with_zeros_or_empty_texts(tmp_path: Path) -> None:
    write(tmp_path / "x", ("events", {"topic": ["all"] * 2}))
    assert spool.read(tmp_path / "x")["events"] == {
        "time": array("d", [0.0, 0.0]),
        "topic": ["all"] * 2,
        "message": [""] * 2,
    }


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_truncated_spool_is_refused_but_its_whole_chunks_can_be_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x"
    first, _ = write(path, ("events", events()), ("events", events(100)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CaptureError, match="are incomplete") as caught:
        spool.read(path)
    assert f"byte {first}" in caught.value.where
    assert spool.read(path, partial=True) == {"events": events()}


@settings(max_examples=60)
@given(st.integers(1, 300))
def test_every_truncation_within_a_chunk_raises_capture_error(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
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


def test_a_flipped_bit_raises_capture_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, ("events", events(100)))
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 0x10
    path.write_bytes(raw)
    with pytest.raises(CaptureError, match="damaged"):
        spool.read(path, partial=True)


@pytest.mark.parametrize(
    ("content", "says"), [(b"hello\nworld\n", "damaged"), (b"\xc1", "damaged"), (None, "cannot be read")]
)
def test_a_missing_file_or_one_of_another_format_raises_capture_error(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(CaptureError, match=says):
        spool.read(tmp_path / "x")


@pytest.mark.parametrize(
    ("table", "change"),
    [("nothing", {}), ("events", {"message": ["a"]}), ("events", {"extra": ["a"] * 3})],
    ids=["unknown table", "unequal lengths", "unknown column"],
)
def test_columns_that_do_not_fit_the_table_are_not_written(table: str, change: Columns) -> None:
    stream = io.BytesIO()
    with pytest.raises((ValueError, KeyError)):
        spool.write_chunk(stream, table, events() | change)
    assert stream.getvalue() == b""
