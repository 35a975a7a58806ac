"""What made-up runs of the original and the patched script prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalescope.fixing.comparison import close, differences
from scalescope.fixing.copies import Copy, digest
from scalescope.fixing.outcome import Outcome
from scalescope.fixing.proof import HOPELESS, LOOKS, Proof, affordable, prove


def outcome(seconds: float = 1.0, *lines: str, files: dict[str, Path] | None = None, **fields: Any) -> Outcome:
    files = files or {}
    usual = {"peak_bytes": 100, "of_tasks": (), "error": "", "copy": Copy(Path("nowhere"))}
    digests = {name: digest(path) for name, path in files.items()}
    given = {"status": 0, "lines": lines, "written": files, "digests": digests}
    return Outcome(seconds=seconds, **{**usual, **given, **fields})


def proof(original: Sequence[float], patched: Sequence[float], budget_s: float = 1e9, **fields: Any) -> Proof:
    times: dict[str, Iterator[float]] = {"a": cycle(original), "b": cycle(patched)}
    other = {"a": {}, "b": fields}
    return prove(lambda which: outcome(next(times[which]), **other[which]), outcome(), budget_s=budget_s)


def test_a_patch_that_is_clearly_faster_needs_the_fewest_pairs() -> None:
    found = proof([10.0, 10.4, 10.2], [2.5, 2.6, 2.4])
    assert found.proven
    assert len(found.pairs) == LOOKS[0]
    assert found.times == pytest.approx(4.08, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert 1 < found.low < found.times < found.high


@pytest.mark.parametrize("patched", [[9.9, 10.5, 9.9], [12.0]], ids=["as fast", "slower"])
def test_a_patch_that_is_not_faster_is_withdrawn(patched: list[float]) -> None:
    found = proof([10.0, 9.9, 10.1], patched)
    assert not found.proven
    assert not found.changed
    assert found.reason
    assert len(found.pairs) == (HOPELESS if patched == [12.0] else LOOKS[0])


@pytest.mark.parametrize(
    ("recorded", "patched", "pairs", "proven"),
    [(10.0, 5.0, 1, True), (10.0, 9.8, 1, False), (10.0, 11.0, 1, False), (10.5, 5.0, LOOKS[0], True)],
    ids=["faster", "gains too little", "slower", "the original's time differs"],
)
def test_one_pair_is_enough_where_two_runs_take_the_same_virtual_time(
    recorded: float, patched: float, pairs: int, proven: bool
) -> None:
    seconds = {"a": 10.0, "b": patched}
    found = prove(lambda which: outcome(seconds[which]), outcome(recorded), budget_s=1e9, virtual=True)
    assert (len(found.pairs), found.proven) == (pairs, proven)
    assert found.times == pytest.approx(10.0 / patched)


def test_changed_results_refute_a_patch_on_a_virtual_clock_too() -> None:
    runs = {"a": outcome(10.0), "b": outcome(5.0, values={"int 1": 1})}
    original = outcome(10.0, values={"int 2": 1})
    assert prove(lambda which: {**runs, "a": original}[which], original, budget_s=1e9, virtual=True).changed


def test_noisy_runs_take_more_pairs_until_the_budget_is_used() -> None:
    noisy = [10.0, 30.0, 12.0, 24.0, 11.0], [6.0, 28.0, 13.0, 9.0, 20.0]
    assert len(proof(*noisy).pairs) > LOOKS[0]
    short = proof(*noisy, budget_s=1.0)
    assert not short.proven
    assert len(short.pairs) == LOOKS[0]


def test_a_patch_that_gains_less_than_a_twentieth_is_not_offered() -> None:
    found = proof([10.0, 10.0001], [9.8, 9.8001])
    assert not found.proven
    assert found.times == pytest.approx(10 / 9.8, rel=1e-3)


def test_a_patch_that_needs_the_memory_of_the_machine_is_not_offered() -> None:
    assert not proof([10.0, 10.1], [2.0, 2.1], peak_bytes=1 << 60).proven


def test_different_results_end_the_proof_after_the_first_pair() -> None:
    found = proof([10.0], [1.0], lines=("other",))
    assert found.changed
    assert not found.proven
    assert len(found.pairs) == 1


def test_an_original_script_that_fails_sometimes_proves_no_patch() -> None:
    found = prove(lambda which: outcome(2.0 - (which == "b"), status=which == "a"), outcome(), budget_s=1e9)
    assert not found.proven
    assert not found.changed


@pytest.mark.parametrize(("budget_s", "looks"), [(0.0, (3,)), (35.0, (3,)), (60.0, (3, 4, 5, 6)), (1e9, LOOKS)])
def test_the_budget_limits_the_number_of_looks(budget_s: float, looks: tuple[int, ...]) -> None:
    assert affordable(budget_s, 10.0) == looks


# ------------------------------------------------------------------ the same results

SAME = {
    "the same": ([("a", "b"), ("a", "b")], ("a", "b")),
    "a time that differs in each run": ([("took 1.2 s", "7"), ("took 1.4 s", "7")], ("took 0.3 s", "7")),
    "another order of additions": ([("0.30000000000000004",)] * 2, ("0.3",)),
    "lines that not each run has": ([("a", "warning", "b"), ("a", "b")], ("a", "b", "x")),
}
OTHER = {
    "another line": ([("a", "b")] * 2, ("a", "c")),
    "another order": ([("a", "b")] * 2, ("b", "a")),
    "one line more": ([("a",)] * 2, ("a", "a")),
    "another count": ([("found 3",)] * 2, ("found 4",)),
    "another number": ([("mean 0.3001",)] * 2, ("mean 0.3002",)),
    "another text where numbers vary": ([("took 1.2 s",), ("took 1.4 s",)], ("failed",)),
    "a line that each run has": ([("a", "warning"), ("a",)], ("b",)),
}


@pytest.mark.parametrize("name", [*SAME, *OTHER])
def test_output_is_compared_as_far_as_runs_of_the_original_agree(name: str) -> None:
    originals, patched = (SAME | OTHER)[name]
    found, varies = differences([outcome(1.0, *each) for each in originals], outcome(1.0, *patched))
    assert bool(found) is (name in OTHER)
    assert bool(varies) >= (len(set(originals)) > 1 and not found)


def test_exit_status_and_output_of_workers_are_compared() -> None:
    original = [outcome(of_tasks=("1", "2"))] * 2
    assert not differences(original, outcome(of_tasks=("1", "2")))[0]
    assert differences(original, outcome(of_tasks=("1", "3")))[0]
    assert differences(original, outcome(of_tasks=("1", "2"), status=1, error="ValueError"))[0]


def written(folder: Path, name: str, content: Any) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    path = folder / name
    if path.suffix == ".npy":
        np.save(path, content)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(content), path)
    else:
        path.write_text(content)
    return {name: path}


ROUNDED = 0.1 + 0.2
FILES = [
    ("a.csv", "x\n0.3\n", f"x\n{ROUNDED}\n", "x\n0.4\n"),
    ("a.npy", np.array([0.3]), np.array([ROUNDED]), np.array([0.4])),
    ("a.parquet", {"x": [0.3], "n": [1]}, {"x": [ROUNDED], "n": [1]}, {"x": [0.3], "n": [2]}),
    ("a.bin", "same", "same", "other"),
]


@pytest.mark.parametrize(("name", "content", "close", "other"), FILES, ids=[each[0] for each in FILES])
def test_files_are_compared_by_content_or_values(
    tmp_path: Path, name: str, content: Any, close: Any, other: Any
) -> None:
    originals = [outcome(files=written(tmp_path / "a", name, content))] * 2
    assert not differences(originals, outcome(files=written(tmp_path / "b", name, close)))[0]
    assert differences(originals, outcome(files=written(tmp_path / "c", name, other)))[0]
    assert differences(originals, outcome())[0]
    assert differences(originals, outcome(files={**originals[0].written, "more": originals[0].written[name]}))[0]


def test_a_file_that_differs_in_each_run_is_not_compared(tmp_path: Path) -> None:
    originals = [outcome(files=written(tmp_path / which, "log.bin", which)) for which in "ab"]
    found, varies = differences(originals, outcome(files=written(tmp_path / "c", "log.bin", "c")))
    assert not found
    assert varies == ["log.bin"]


VALUES = {
    "in another order": ({"int 1": 2, "int 2": 1}, {"int 2": 1, "int 1": 2}, True),
    "with other last digits": ({"float 0.3": 1, "float 9.0": 1}, {f"float {ROUNDED}": 1, "float 9.0": 1}, True),
    "another value": ({"float 0.3": 1}, {"float 0.4": 1}, False),
    "one less": ({"int 1": 2}, {"int 1": 1}, False),
    "one more": ({"int 1": 1}, {"int 1": 1, "int 2": 1}, False),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_the_client_gets_are_compared_in_any_order(name: str) -> None:
    original, patched, same = VALUES[name]
    found, varies = differences([outcome(values=original)] * 2, outcome(values=patched))
    assert (not found, varies) == (same, [])


def test_values_that_come_to_a_client_which_got_none_are_not_compared() -> None:
    found, varies = differences([outcome(values={})] * 2, outcome(values={"int 2": 1}))
    assert (found, len(varies)) == ([], 1)


def test_a_value_that_differs_in_each_run_is_not_compared() -> None:
    originals = [outcome(values={"int 1": 1, f"float {each}": 1}) for each in (0.1, 0.2)]
    found, varies = differences(originals, outcome(values={"int 1": 1, "float 0.7": 1}))
    assert not found
    assert len(varies) == 1
    assert differences(originals, outcome(values={"float 0.7": 1}))[0]


@pytest.mark.parametrize(
    ("patched", "same"),
    [({"int 2": 1}, True), ({f"float {ROUNDED}": 1}, True), ({"int 2": 1, "int 3": 1}, False), ({}, False)],
)
def test_a_patch_that_keeps_results_on_the_cluster_may_fetch_fewer_values_but_no_new_ones(
    patched: dict[str, int], same: bool
) -> None:
    originals = [outcome(values={"int 1": 1, "int 2": 1, "float 0.3": 1})] * 2
    assert differences(originals, outcome(values=patched))[0]
    found, varies = differences(originals, outcome(values=patched), "fewer")
    assert (not found) is same
    assert len(varies) == bool(patched)


@pytest.mark.parametrize(("lines", "same"), [(("mean 2",), True), (("",), False), ((), False)])
def test_fetched_values_may_change_only_if_the_program_prints_output_that_stays_the_same(
    lines: tuple[str, ...], same: bool
) -> None:
    originals = [replace(outcome(values={"int 1": 2}), lines=lines)] * 2
    patched = replace(outcome(values={"float 2": 1}), lines=lines)
    assert differences(originals, patched, "fewer")[0]
    found, _ = differences(originals, patched, "others")
    assert (not found) is same


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("1e-3", "0.001", True),
        ("5", "5.0", False),
        ("x1.0", "y1.0", False),
        ("1_0.5", "10.5", True),
        ("nan", "nan", True),
    ],
)
def test_numbers_in_output_are_compared_with_a_tolerance(a: str, b: str, same: bool) -> None:
    assert close(a, b) is same
