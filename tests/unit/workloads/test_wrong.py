"""Each workload of the suite detects one wrong number in the result of one of its tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import worker

from scalescope import workloads
from scalescope.errors import WrongAnswer
from scalescope.workloads.suite import SUITE

if TYPE_CHECKING:
    from .conftest import Place

ENTRIES = {entry.workload: entry for entry in SUITE}
ITEMS = 6  # most items of a run here
# Prefix of the task that is wrong, where the first of all may be: other random numbers, or rows that nobody asks for,
# give another right answer
AFTER = {
    "array-matmul": "chunk_sum",
    "array-qr": "getitem",
    "beam-co-group-by-key": "apply_dofn_to_bundle",
    "beam-combine": "apply_dofn_to_bundle",
    "beam-group-by-key": "apply_dofn_to_bundle",
    "beam-hot-key": "apply_dofn_to_bundle",
    "csv-to-parquet": "chunk",  # the first row of all has the number 0, which is missed in no sum
    "dataframe-set-index": "sort_index",
    "dataframe-shuffle": "p2pshuffle",
    "futures-fan-in": "lengths",
    "gpu-array": "chunk_sum-aggregate-sum",
    "tpch-q3": "chunk",
    "xarray-anomaly": "days",
}
LEFT_OUT = {  # besides those that change workers, which run on `local` alone
    "beam-files": "its tasks return no numbers; test_checks has its files wrong",
    "futures-nested": "its tasks need workers in processes of their own",
    "gpu-train": "a loss that is larger by one still falls",
    "xgboost-train": "one wrong number in its data still makes a good model",
    "scalescope_flows.task_runner:run": "needs a Prefect server",
}
# The others are run by `make test`
QUICK = {
    *("array-mirror", "array-rechunk", "bag-map", "dataframe-groupby", "delayed-many", "futures-fan-in"),
    *("futures-lognormal", "futures-map", "futures-scatter", "futures-sequence", "futures-window"),
    *("tree-reduce", "xarray-resample", "zarr-roundtrip"),
}


def wrong(value: Any) -> Any:
    """The value with one number changed, in data frames and dicts one per part; None if it has no number."""
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, int | float | np.number):
        return value + 1
    if isinstance(value, np.ndarray | pd.Series | pd.DataFrame) and value.size:
        return _first_wrong(value)
    if isinstance(value, dict):
        found = {key: other for key, each in value.items() if (other := wrong(each)) is not None}
        return {**value, **found} if found else None
    if type(value) in (list, tuple):
        for index, each in enumerate(value):
            if (other := wrong(each)) is not None:
                return type(value)([*value[:index], other, *value[index + 1 :]])
    return None


def _first_wrong(value: Any) -> Any:
    changed = value.copy()
    if isinstance(value, pd.DataFrame):
        numbers = [index for index, kind in enumerate(value.dtypes) if kind.kind in "iuf"]
        for index in numbers:
            changed.iloc[0, index] += 1
        return changed if numbers else None
    if value.dtype.kind not in "iuf":
        return None
    if isinstance(value, pd.Series):
        changed.iloc[0] += 1
    else:
        changed.flat[0] += 1
    return changed


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough)
        for name in ENTRIES
        if name not in LEFT_OUT and not workloads.load(name).kinds
    ],
)
def test_a_wrong_result_of_one_task_raises_wrong_answer(
    inproc: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    done: list[str] = []
    lock = threading.Lock()
    real = worker._run_task_simple

    def run(task: Any, *rest: Any) -> Any:
        found = real(task, *rest)
        prefix = key_split(task.key)
        with lock:
            if not done and found["op"] == "task-finished" and prefix == AFTER.get(name, prefix):
                other = wrong(found["result"])
                if other is not None:
                    done.append(prefix)
                    found["result"] = other
        return found

    monkeypatch.setattr(worker, "_run_task_simple", run)
    workload, small = workloads.load(name), ENTRIES[name].small
    with pytest.raises(WrongAnswer):
        workload.run(inproc.client, **workload.bind({**small, "items": min(int(str(small["items"])), ITEMS)}))
    assert done
