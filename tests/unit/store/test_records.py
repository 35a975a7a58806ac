from __future__ import annotations

import sys
import uuid
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from scalescope.errors import StoreError
from scalescope.model.records import TABLES, complete
from scalescope.store import records

Make = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture(params=["folder", "file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        root = f"memory://{uuid.uuid4().hex}"
        yield f"{root}/run/key"
        fs = fsspec.filesystem("memory")
        if fs.exists(root):
            fs.rm(root, recursive=True)
        return
    yield ("file://" if request.param == "file" else "") + str(tmp_path / "run with ü" / "key")


def columns(table: str, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        name: [f"{i}-ü" for i in range(rows)]
        if kind == "str"
        else array(
            kind, (1.7e9 + rng.random(rows)).tolist() if kind in "df" else rng.integers(-100, 100, rows).tolist()
        )
        for name, kind in TABLES[table].items()
    }


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_every_table_is_read_back_exactly(address: str, rows: int) -> None:
    tables = {name: columns(name, rows) for name in TABLES}
    records.write(address, tables)
    assert records.names(address) == tuple(TABLES)
    for table, declared in TABLES.items():
        found = records.read(address, table)
        assert list(found) == list(declared)
        for name, kind in declared.items():
            if kind == "str":
                assert found[name] == tables[table][name]
            else:
                np.testing.assert_array_equal(found[name], tables[table][name], strict=False)
                assert np.asarray(found[name]).dtype == np.dtype(kind)


def test_extreme_numbers_are_read_back_exactly(address: str) -> None:
    table = columns("memory", 4)
    table["time"] = array("d", [0.0, 5e-324, 1.7976931348623157e308, -0.0])
    table["rss"] = array("q", [-(2**63), 2**63 - 1, 0, 1])
    records.write(address, {"memory": table})
    found = records.read(address, "memory")
    assert np.asarray(found["time"]).tobytes() == table["time"].tobytes()
    assert list(found["rss"]) == list(table["rss"])


def test_a_second_write_replaces_the_first(address: str, make_tables: Make) -> None:
    records.write(address, make_tables(3))
    records.write(address, {"tasks": make_tables(1)["tasks"]})
    assert records.names(address) == ("tasks",)
    assert len(records.read(address, "tasks")["key"]) == 1


def test_writing_leaves_no_temporary_files(tmp_path: Path, make_tables: Make) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".key.tmp").mkdir()  # left by a killed process
    (tmp_path / "run" / ".key.tmp" / "logs.parquet").touch()
    records.write(str(tmp_path / "run" / "key"), make_tables())
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "run",
        "run/key",
        "run/key/events.parquet",
        "run/key/tasks.parquet",
    ]


def test_an_interrupted_write_leaves_no_records(
    tmp_path: Path, make_tables: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        seen.append(sorted(path.name for path in (tmp_path / "run").iterdir()))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    records.write(str(tmp_path / "run" / "key"), make_tables())
    assert seen == [[".key.tmp"]]

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(StoreError, match="No space left") as error:
        records.write(str(tmp_path / "run" / "other"), make_tables())
    assert "full" in error.value.cause
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["key"]


def test_a_task_takes_at_most_30_bytes_on_disk(tmp_path: Path) -> None:
    """Tasks of about 0.2 s on 300 workers, in the order in which they ended, with times of a real clock (2**-22 s)."""
    rows, workers = 100_000, 300
    rng = np.random.default_rng(1)
    worker, seconds = np.arange(rows) % workers, rng.lognormal(np.log(0.2), 0.5, rows)
    stop = 0.2 * np.arange(rows) / workers + 0.05 * rng.random(rows)
    times = {"runnable": stop - 2 * seconds, "start": stop - seconds, "stop": stop, "done": stop + 0.004}
    table: dict[str, Any] = {
        name: array("d", np.round((1.7635e9 + np.sort(value)) * 2**22) / 2**22) for name, value in times.items()
    }
    table |= {"key": [f"('lambda-0123456789abcdef', {i})" for i in range(rows)], "prefix": ["lambda"] * rows}
    table |= {"group": ["lambda-0123456789abcdef"] * rows, "worker": [f"tcp://127.0.0.1:{30_000 + i}" for i in worker]}
    table |= {"nbytes": array("q", rng.integers(28, 34, rows)), "thread": array("q", 10**14 + worker)}
    records.write(str(tmp_path), {"tasks": complete("tasks", table, rows)})
    assert (tmp_path / "tasks.parquet").stat().st_size / rows <= 30


class TestRefusals:
    @pytest.mark.parametrize(
        "table",
        [
            {"time": [1.0], "process": ["a"], "seconds": [1.0], "extra": [1]},
            {"time": [1.0], "process": ["a"]},
            {"time": [1.0, 2.0], "process": ["a"], "seconds": [1.0]},
        ],
        ids=["unknown column", "missing column", "unequal lengths"],
    )
    def test_columns_that_do_not_fit_the_declared_table_are_refused(self, address: str, table: dict[str, Any]) -> None:
        with pytest.raises(StoreError) as error:
            records.write(address, {"lag": table})
        assert "another version" in error.value.cause

    def test_reading_missing_records_raises_store_error(self, address: str) -> None:
        for act in (lambda: records.read(address, "tasks"), lambda: records.names(address)):
            with pytest.raises(StoreError, match="nothing is there") as error:
                act()
            assert "another machine" in error.value.cause

    @pytest.mark.parametrize("damage", [b"", b"PAR1", b"x" * 100])
    def test_a_damaged_parquet_file_raises_store_error(self, tmp_path: Path, make_tables: Make, damage: bytes) -> None:
        records.write(str(tmp_path / "key"), make_tables())
        (tmp_path / "key" / "tasks.parquet").write_bytes(damage)
        with pytest.raises(StoreError, match="'tasks'") as error:
            records.read(str(tmp_path / "key"), "tasks")
        assert error.value.cause == "The file is damaged."

    def test_a_flipped_bit_is_reported_as_damage_or_changes_no_data(self, tmp_path: Path) -> None:
        table = columns("memory", 1000)
        records.write(str(tmp_path / "key"), {"memory": table})
        path = tmp_path / "key" / "memory.parquet"
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        problems = []
        for place in np.random.default_rng(1).integers(4, footer, 60).tolist():
            damaged = bytearray(data)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            try:
                found = records.read(str(tmp_path / "key"), "memory")
            except StoreError as error:
                problems.append(error)
            else:  # the bit does not belong to the data
                assert found["worker"] == table["worker"]
                np.testing.assert_array_equal(found["time"], table["time"])
                np.testing.assert_array_equal(found["rss"], table["rss"])
        assert len(problems) > 50
        assert {error.cause for error in problems} == {"The file is damaged."}

    def test_an_address_whose_package_is_missing_is_refused_with_the_next_step(
        self, make_tables: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gcsfs", None)
        with pytest.raises(StoreError, match="gcsfs") as error:
            records.write("gs://bucket/key", make_tables())
        assert "Install" in error.value.next_step

    def test_writing_records_below_a_file_raises_store_error(self, tmp_path: Path, make_tables: Make) -> None:
        (tmp_path / "run").touch()
        with pytest.raises(StoreError, match="write the records"):
            records.write(str(tmp_path / "run" / "key"), make_tables())
