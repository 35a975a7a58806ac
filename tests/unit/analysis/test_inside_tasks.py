from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.inside import inside

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.inside_tasks import Stack, called_by_user, inside_tasks
from scalescope.analysis.measure import measure
from scalescope.model.metrics import BUSY_PARTS
from scalescope.model.records import from_rows

TASKS = [
    {"worker": "a", "start": 0, "stop": 3, "prefix": "load"},
    {"worker": "b", "start": 0, "stop": 1, "prefix": "train"},
]
WORKERS = {"a": {}, "b": {}}


def measured(records, seconds, stacks=None):
    return measure(records(TASKS, WORKERS) | inside(seconds, stacks), threads=2, elapsed_s=3)


@pytest.mark.parametrize("seconds", [{}, {"load": (0.0, 0.0)}])
def test_busy_time_is_not_divided_without_metrics_from_the_workers(records, seconds):
    metrics = measured(records, seconds)
    assert (metrics.busy_time_s, metrics.busy_by_prefix) == (None, None)


def test_busy_time_is_divided_by_metrics_and_stacks_from_the_workers(records):
    stacks = {"job.py:7 load;time.sleep()": 60, "job.py:8 load;zlib.decompress()": 20, "": 20}
    metrics = measured(records, {"load": (0.6, 2.4)}, stacks)
    assert metrics.busy_time_s == pytest.approx({"computing": 0.6, "for_core": 0.0, "waiting": 2.4, "unknown": 1.0})
    load = metrics.busy_by_prefix["load"]
    assert (load.where, load.what, load.share) == ("job.py:7 load", "time.sleep", 0.6)
    assert metrics.busy_by_prefix["train"].seconds == pytest.approx(
        {"computing": 0.0, "for_core": 0.0, "waiting": 0.0, "unknown": 1.0}
    )


@pytest.mark.parametrize(("lacked", "for_core"), [(0.0, 0.0), (0.8, 0.8), (9.0, 1.2)])
def test_waiting_for_a_core_is_charged_only_to_tasks_that_compute(records, lacked, for_core):
    """`train` sleeps and is charged nothing; the charge is at most the time that threads were off the cores."""
    tables = records(TASKS, {"a": {"core_wait_s": lacked}, "b": {}})
    metrics = measure(tables | inside({"load": (1.8, 1.2), "train": (0.0, 1.0)}), threads=2, elapsed_s=3)
    assert metrics.busy_time_s == pytest.approx(
        {"computing": 1.8, "for_core": for_core, "waiting": 2.2 - for_core, "unknown": 0.0}
    )


@pytest.mark.parametrize(("samples", "share"), [(150, 0.5), (300, 1.0), (3, 0.01)])
def test_samples_of_an_event_loop_are_a_share_of_the_whole_busy_time(records, samples, share):
    metrics = measured(records, {"load": (0.0, 3.0)}, {"event-loop;job.py:7 load;time.sleep()": samples})
    assert metrics.busy_by_prefix["load"].share == pytest.approx(share)


def test_metrics_beyond_the_busy_time_of_a_prefix_are_cut_in_proportion(records):
    metrics = measured(records, {"load": (2.0, 4.0), "train": (0.5, 0.5)})  # as when tasks have seceded
    assert metrics.busy_time_s == pytest.approx({"computing": 1.5, "for_core": 0.0, "waiting": 2.5, "unknown": 0.0})


def test_only_seconds_within_tasks_count_among_the_metrics_of_distributed(records):
    known = {("execute", "p2p-shard-cpu", "seconds"), ("execute", "deserialize", "seconds")}
    known |= {("execute", "thread-cpu", "bytes"), ("get-data", "thread-cpu", "seconds")}
    rows = [{"context": a, "prefix": "load", "activity": b, "unit": c, "value": 1.0} for a, b, c in sorted(known)]
    tables = records(TASKS, WORKERS) | {"fine_metrics": from_rows("fine_metrics", rows)}
    metrics = measure(tables, threads=2, elapsed_s=3)
    assert metrics.busy_time_s == pytest.approx({"computing": 1.0, "for_core": 0.0, "waiting": 0.0, "unknown": 3.0})


seconds = st.floats(-0.001, 50)
tasks = st.builds(
    lambda worker, start, lasted, prefix, status: {
        "worker": worker, "start": start, "stop": start + lasted, "prefix": prefix, "status": status
    },
    st.sampled_from("ab"), st.floats(0, 10), st.floats(0, 10), st.sampled_from(["load", "train", "join"]),
    st.sampled_from([0, 0, 0, 1, 2]),
)  # fmt: skip


@given(
    st.lists(tasks, min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(["load", "train", "other"]), st.tuples(seconds, seconds)),
    st.floats(0, 100),
)
def test_the_parts_inside_tasks_add_up_to_the_busy_time(records, ran, spent, busy_s):
    ran = [*ran, {"worker": "a", "start": 0, "stop": 1, "prefix": "load"}]
    tables = records(ran, WORKERS)
    found = inside_tasks(tables | inside(spent), Attempts.read(tables), busy_s)
    if found is not None:
        assert all(each.seconds.keys() == BUSY_PARTS.keys() for each in found.values())
        assert min(part for each in found.values() for part in each.seconds.values()) >= 0
        assert sum(each.busy_s for each in found.values()) == pytest.approx(busy_s, rel=1e-9, abs=1e-9)
        of_prefix = {prefix: each.busy_s for prefix, each in found.items()}
        assert sum(of_prefix.values()) == pytest.approx(busy_s, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("frames", "user", "called"),
    [
        ("job.py:7 load;time.sleep()", "job.py:7 load", "time.sleep"),
        ("job.py:7 load;json.loads;json.decoder.decode", "job.py:7 load", "json.loads"),
        ("job.py:7 load;job.py:9 part", "job.py:9 part", ""),
        ("pandas.core.frame.sort_values", "", "pandas.core.frame.sort_values"),
    ],
)
def test_a_stack_names_the_users_line_and_the_function_that_it_calls(frames, user, called):
    stack = Stack(tuple(frames.split(";")), 1)
    assert (stack.user, called_by_user(stack)) == (user, called)
