"""Log records of workers that have ended are read from files that were never closed."""

from __future__ import annotations

import faulthandler
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.capture import logs
from scalescope.capture.blackbox import BlackBox
from scalescope.model.records import Columns

Rows = Callable[[Columns], list[dict[str, Any]]]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BlackBox]:
    was_enabled = faulthandler.is_enabled()
    plugin = BlackBox(str(tmp_path))
    plugin.setup(SimpleNamespace(address="tcp://10.0.0.1:4000"))
    yield plugin
    plugin.teardown(None)
    if was_enabled:
        faulthandler.enable()


def test_log_records_of_the_root_and_of_distributed_are_kept(box: BlackBox, tmp_path: Path, rows: Rows) -> None:
    logging.getLogger("user").error("two\nlines %s", "é")
    logging.getLogger("distributed.worker").warning("unresponsive")
    found = rows(logs.read(tmp_path, {"tcp://10.0.0.1:4000"}))
    assert [(row["level"], row["text"]) for row in found] == [
        ("ERROR", "user two\nlines é"),
        ("WARNING", "distributed.worker unresponsive"),
    ]
    assert {row["worker"] for row in found} == {"tcp://10.0.0.1:4000"}
    assert 0 < found[0]["time"] <= found[1]["time"]
    assert logs.read(tmp_path, {"tcp://10.0.0.9:4000"})["text"] == []
    assert logs.read(tmp_path / "nothing", {"tcp://10.0.0.1:4000"})["text"] == []


def test_a_traceback_that_faulthandler_writes_is_kept(box: BlackBox, tmp_path: Path, rows: Rows) -> None:
    logging.getLogger("user").warning("before")
    assert box.handler is not None
    faulthandler.dump_traceback(file=box.handler.descriptor)
    before, *fault = rows(logs.read(tmp_path, {"tcp://10.0.0.1:4000"}))
    assert {(row["level"], row["time"]) for row in fault} == {("FAULT", before["time"])}
    assert any("test_logs.py" in row["text"] for row in fault)


def test_no_log_record_is_written_after_teardown(box: BlackBox, tmp_path: Path) -> None:
    box.teardown(None)
    logging.getLogger("user").warning("late")
    assert logs.read(tmp_path, {"tcp://10.0.0.1:4000"})["text"] == []
    box.teardown(None)


def test_only_the_end_of_a_long_log_file_is_read(tmp_path: Path) -> None:
    entries = [{"worker": "w", "time": 1.0}]
    entries += [
        {"time": float(number), "level": "INFO", "text": f"line {number} " + "x" * 1000} for number in range(1000)
    ]
    (tmp_path / "x.log").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    columns = logs.read(tmp_path, {"w"})
    assert columns["text"][-1].startswith("line 999 ")
    assert logs.TAIL_BYTES / 1100 < len(columns["text"]) < 300
    assert set(columns["level"]) == {"INFO"}


@pytest.mark.parametrize("content", [b"", b"\n", b"garbage\n", b'{"worker": "w", "time": 1.0}\n{"cut', b"[1]\n"])
def test_a_log_file_that_was_cut_anywhere_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.log").write_bytes(content)
    columns = logs.read(tmp_path, {"w"})
    assert columns["text"] == (['{"cut'] if b"cut" in content else [])
