from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.gpu import gpu_time
from scalescope.analysis.measure import measure
from scalescope.model.metrics import GPU_PARTS
from scalescope.model.records import from_rows

TASKS = [{"worker": "a", "start": 0, "stop": 4}, {"worker": "b", "start": 0, "stop": 2}]
WORKERS = {"a": {}, "b": {}}


def row(when, busy, prefix="train", doing="", cpu=1.0, worker="a", gpu="GPU-1", memory=5):
    shared = {"worker": worker, "gpu": gpu, "time": when, "utilisation": busy, "memory": memory}
    return {**shared, "prefix": prefix, "doing": doing, "cpu": cpu}


def divided(records, rows):
    tables = records(TASKS, WORKERS) | {"gpu": from_rows("gpu", rows)}
    metrics = measure(tables, threads=2, elapsed_s=4)
    return metrics, Attempts.read(tables).epoch


def samples(records, *rows):
    epoch = Attempts.read(records(TASKS, WORKERS)).epoch
    return [each | {"time": each["time"] + epoch} for each in rows]


def test_without_gpu_samples_the_gpu_metrics_are_none(records):
    metrics, _ = divided(records, [])
    assert (metrics.gpu_busy, metrics.gpu_time_s, metrics.gpus) == (None, None, None)


def test_gpu_time_is_divided_into_parts_by_the_samples(records):
    rows = samples(
        records,
        row(0.5, 1.0),
        row(1.5, 0.25, doing="loading"),
        row(2.5, 0.5, doing="copying", memory=9),
        row(3.5, 0.0, cpu=0.25),
        row(3.9, 0.25, prefix=""),
    )
    metrics, _ = divided(records, rows)
    assert metrics.gpu_time_s == pytest.approx(
        {"computing": 1.75, "loading": 0.75, "python": 0.25, "copying": 0.5, "waiting": 0.75, "unseen": 0, "no_gpu": 2}
    )
    assert metrics.gpu_busy == pytest.approx(0.4)
    assert (metrics.gpu_memory_bytes, metrics.gpus) == (9, 1)
    assert metrics.gpu_by_prefix["train"].utilisation == pytest.approx(1.75 / 4)
    assert metrics.gpu_by_prefix["train"].memory_peak == 9


def test_a_card_that_two_workers_share_counts_once(records):
    rows = samples(records, row(0.5, 1.0), row(0.5, 1.0), row(1.5, 0.5, worker="b"), row(1.7, 0.0, prefix=""))
    metrics, _ = divided(records, rows)
    assert metrics.gpus == 1
    assert metrics.gpu_busy == pytest.approx(0.5)  # the two rows of one instant are one sample
    assert metrics.gpu_time_s["no_gpu"] == 0


def test_utilisation_that_nvml_reports_late_belongs_to_earlier_samples(records):
    rows = [row(0.1 * i, float(2 <= i < 22), doing="loading" if i >= 20 else "copying") for i in range(40)]
    metrics, _ = divided(records, samples(records, *rows))  # the card computed for 2 s, and NVML says it 0.2 s late
    assert metrics.gpu_time_s["computing"] == pytest.approx(2)
    assert metrics.gpu_time_s["copying"] == 0
    assert metrics.gpu_time_s["loading"] == pytest.approx(2)
    assert metrics.gpu_busy == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("prefixes", "used", "using"),
    [
        (["prepare"] * 20 + ["train"] * 20, [0.0] * 21 + [1.0] * 19, {"train"}),
        (["train"] * 20 + ["store"] * 20, [1.0] * 22 + [0.0] * 18, {"train"}),  # NVML tells the end late
        (["prepare", "train"] * 20, [0.5] * 40, {"prepare", "train"}),  # shorter than NVML's period
    ],
)
def test_tasks_just_before_or_after_gpu_tasks_are_not_taken_for_gpu_tasks(records, prefixes, used, using):
    told = zip(prefixes, used, strict=True)
    rows = samples(records, *(row(0.1 * i, busy, prefix) for i, (prefix, busy) in enumerate(told)))
    tables = records(TASKS, WORKERS) | {"gpu": from_rows("gpu", rows)}
    assert gpu_time(tables, Attempts.read(tables), np.array([4.0, 0.0])).using == using


def test_gpu_time_of_tasks_that_no_sample_caught_counts_as_unseen(records):
    metrics, _ = divided(records, samples(records, row(0.5, 1.0, prefix="")))
    assert metrics.gpu_time_s["unseen"] == pytest.approx(4)
    assert metrics.gpu_time_s["no_gpu"] == pytest.approx(2)


values = st.tuples(
    st.floats(0, 4),
    st.floats(0, 1),
    st.sampled_from(["", "train", "load"]),
    st.sampled_from(["", "copying", "loading"]),
    st.floats(0, 1),
    st.sampled_from(["a", "b", "elsewhere"]),
)


@given(st.lists(values, min_size=1, max_size=30), st.floats(0, 100), st.floats(0, 100))
def test_the_gpu_parts_add_up_to_the_busy_time_of_each_worker(records_of, given_rows, busy_a, busy_b):
    tables, epoch = records_of
    cards = {"a": "GPU-1", "b": "GPU-1", "elsewhere": "GPU-2"}
    rows = [row(*each, gpu=cards[each[-1]]) | {"time": each[0] + epoch} for each in given_rows]
    busy = np.array([busy_a, busy_b])
    found = gpu_time(tables | {"gpu": from_rows("gpu", rows)}, Attempts.read(tables), busy)
    assert found is not None
    assert sum(found.seconds.values()) == pytest.approx(busy, abs=1e-9)
    assert set(found.seconds) == set(GPU_PARTS)
    assert all((each >= 0).all() for each in found.seconds.values())
    assert 0 <= found.busy <= 1


@pytest.fixture(scope="session")
def records_of(records):
    tables = records(TASKS, WORKERS)
    return tables, Attempts.read(tables).epoch
