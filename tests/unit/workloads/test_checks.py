from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.errors import InvalidField, UsageError, WrongAnswer
from scalescope.workloads import _file_work, arrays, beam_files, beam_pardo, dataframes
from scalescope.workloads._common import check_stages, partitions, require

# ------------------------------------------------------------------------------------------- right answers


def test_the_check_of_maps_accepts_correct_results() -> None:
    check_stages([2, 3, 4], items=3, stages=2)
    check_stages([], items=0, stages=2)


def test_the_check_of_beam_pardo_accepts_correct_results_in_any_order() -> None:
    beam_pardo.check([(1, 3), (0, 3), (2, 3)], items=3, stages=3)
    beam_pardo.check([], items=0, stages=3)


@given(st.integers(1, 12), st.integers(0, 5))
def test_the_check_of_array_matmul_accepts_a_correct_product(size: int, seed: int) -> None:
    left, right = np.random.default_rng(seed).random((2, size, size))
    vector = np.random.default_rng([seed, 1]).random(size)
    arrays.check_matmul((left @ right) @ vector, left @ (right @ vector))


def _shuffled(items: int, rows: int, groups: int) -> pd.DataFrame:
    whole = pd.concat(dataframes.partition(index, rows=rows, groups=groups, token_of_run="") for index in range(items))
    return pd.concat([dataframes.summarise(part) for _, part in whole.groupby(whole["key"] % items)])


@given(st.integers(1, 5), st.integers(1, 20), st.integers(1, 30))
def test_the_check_of_dataframe_shuffle_accepts_correct_sums(items: int, rows: int, groups: int) -> None:
    dataframes.check_shuffle(_shuffled(items, rows, groups), items=items, rows=rows, groups=groups)


@given(st.binary(min_size=1, max_size=50), st.integers(1, 12))
def test_the_sum_of_a_squared_matrix_equals_the_sum_from_its_margins(content: bytes, size: int) -> None:
    factor = _file_work.matrix(content, size)
    assert factor.shape == (size, size)
    total, device = _file_work.square_and_sum(factor, "cpu")
    assert device == "cpu"
    assert total == pytest.approx(_file_work.sum_of_square(content, size), rel=beam_files.TOLERANCE / 10)


@pytest.fixture
def written(tmp_path: Path) -> dict[str, float]:
    expected = {str(tmp_path / f"{index}.json"): 100.0 + index for index in range(3)}
    for path, total in expected.items():
        Path(path).write_text(json.dumps({"sum": total * (1 + beam_files.TOLERANCE / 2), "device": "cpu"}))
    return expected


def test_the_check_of_beam_files_accepts_correct_results_in_any_order(written: dict[str, float]) -> None:
    assert beam_files.check(list(written)[::-1], written) == {"cpu": 3}
    assert beam_files.check([], {}) == {}


# ------------------------------------------------------------------------------------------- wrong answers


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([2, 3], "2 results for 3 items"),
        ([2, 3, 4, 4], "4 results for 3 items"),
        ([2, 4, 3], "result 1 is 4 instead of 3"),
        ([1, 2, 3], "result 0 is 1 instead of 2"),
    ],
)
def test_the_check_of_maps_refuses_missing_extra_and_wrong_results(results: list[int], message: str) -> None:
    with pytest.raises(WrongAnswer, match=message):
        check_stages(results, items=3, stages=2)


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([(0, 3), (1, 3)], id="lost"),
        pytest.param([(0, 3), (1, 3), (2, 3), (2, 3)], id="doubled"),
        pytest.param([(0, 3), (1, 2), (2, 3)], id="skipped a stage"),
        pytest.param([(0, 3), (1, 4), (2, 3)], id="a stage twice"),
        pytest.param([(0, 3), (1, 3), (1, 3)], id="another item"),
    ],
)
def test_the_check_of_beam_pardo_refuses_lost_doubled_and_skipped_items(results: list[tuple[int, int]]) -> None:
    with pytest.raises(WrongAnswer):
        beam_pardo.check(results, items=3, stages=3)


def test_the_check_of_array_matmul_refuses_a_wrong_product() -> None:
    left, right = np.random.default_rng(0).random((2, 64, 64))
    vector = np.random.default_rng(1).random(64)
    product = left @ right
    product[3, 5] += 1e-3
    with pytest.raises(WrongAnswer, match="its factors"):
        arrays.check_matmul(product @ vector, left @ (right @ vector))
    with pytest.raises(WrongAnswer):
        arrays.check_matmul(np.full(64, np.nan), left @ (right @ vector))


def test_the_check_of_dataframe_shuffle_refuses_wrong_sums() -> None:
    parts = _shuffled(3, 10, 7)
    for name in ("rows", "total", "keys"):
        with pytest.raises(WrongAnswer, match="add up to"):
            dataframes.check_shuffle(parts.assign(**{name: parts[name] + [1, 0, 0]}), items=3, rows=10, groups=7)


def test_the_check_of_beam_files_refuses_missing_wrong_and_unreadable_results(written: dict[str, float]) -> None:
    paths = list(written)
    with pytest.raises(WrongAnswer, match="2 results for 3 items"):
        beam_files.check(paths[1:], written)
    Path(paths[1]).write_text(json.dumps({"sum": written[paths[1]] * 1.01, "device": "cpu"}))
    with pytest.raises(WrongAnswer, match=r"1\.json is .* instead of 101"):
        beam_files.check(paths, written)
    Path(paths[1]).write_text(json.dumps({"sum": float("nan"), "device": "cpu"}))
    with pytest.raises(WrongAnswer, match="is nan instead of"):
        beam_files.check(paths, written)
    Path(paths[1]).unlink()
    with pytest.raises(WrongAnswer, match="cannot be read"):
        beam_files.check(paths, written)


# ------------------------------------------------------------------------------------------- partitions, packages


def test_partition_options_become_keyword_arguments_of_dask() -> None:
    assert partitions(10, None, None) == {}
    assert partitions(10, 4, None) == {"npartitions": 4}
    assert partitions(10, "items", None) == {"npartitions": 10}
    assert partitions(0, "items", None) == {"npartitions": 1}
    assert partitions(10, None, 3) == {"partition_size": 3}


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ((4, 3), "params.partition_size"),
        (("items", 3), "params.partition_size"),
        ((0, None), "params.npartitions"),
        (("all", None), "params.npartitions"),
        ((None, 0), "params.partition_size"),
    ],
)
def test_invalid_partition_options_are_refused(given_: tuple[Any, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        partitions(10, *given_)
    assert caught.value.field == field


def test_requiring_a_missing_package_names_the_extra_to_install() -> None:
    with pytest.raises(UsageError, match=r"no-such-thing.*(?s:.)*pip install .*\[beam\]") as caught:
        require("no_such_thing", "beam")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
