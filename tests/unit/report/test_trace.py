from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.errors import CaptureError, StoreError, UsageError
from scalescope.model.records import from_rows
from scalescope.report import trace

EPOCH = 1e9


def tables(tasks: list[dict[str, Any]], workers: list[dict[str, Any]]) -> dict[str, Any]:
    """Times are given in seconds since the epoch of the test."""
    times = ("assigned", "start", "stop", "done", "runnable", "joined", "left")

    def shifted(row: dict[str, Any]) -> dict[str, Any]:
        return {name: EPOCH + value if name in times else value for name, value in row.items()}

    return {
        "tasks": from_rows("tasks", list(map(shifted, tasks))),
        "workers": from_rows("workers", list(map(shifted, workers))),
    }


def task(worker: str, start: float, stop: float, **given: Any) -> dict[str, Any]:
    names = {"key": f"work-{worker}-{start}", "prefix": "work", "group": "work", "worker": worker, "thread": 7}
    return {**names, "runnable": 0.0, "assigned": 0.0, "start": start, "stop": stop, "done": stop, **given}


def member(worker: str, joined: float = -1.0, **given: Any) -> dict[str, Any]:
    return {"worker": worker, "name": worker, "host": "h", "nthreads": 1, "joined": joined, **given}


def tracks(events: list[trace.Event]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """Begin and end in nanoseconds, and name, of the complete events of each track, in their order."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            found[event["pid"], event["tid"]].append((begin, begin + length, event["name"]))
    return found


def assert_valid(events: list[trace.Event]) -> None:
    """What the format asks for, and that no two events of one track overlap."""
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    for event in events:
        assert event["ph"] in {"M", "X", "C", "i"}
        assert {"name", "pid", "tid"} <= set(event)
        assert event["pid"] in processes
        assert event["ph"] == "M" or event["ts"] >= 0
    for track, found in tracks(events).items():
        assert track in named
        assert all(begin <= end for begin, end, _ in found)
        assert all(left[1] <= right[0] for left, right in pairwise(found))


def names(events: list[trace.Event], what: str) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == what]


# ------------------------------------------------------------------ what is fine


def test_a_trace_has_a_process_per_worker_and_a_track_per_thread() -> None:
    tasks = [task("a", 0, 1), task("a", 0, 2, thread=8), task("b", 0, 1), task("b", 1, 2)]
    found = list(trace.events(tables(tasks, [member("a", nthreads=2), member("b"), member("idle")])))
    assert_valid(found)
    assert names(found, "process_name") == ["cluster", "worker a", "worker b", "worker idle"]
    assert {track: [event[2] for event in each] for track, each in tracks(found).items()} == {
        (1, 1): ["work"],
        (1, 2): ["work"],
        (2, 1): ["work", "work"],
    }
    assert [event["name"] for event in found if event["pid"] == 3 and event["ph"] == "i"] == ["ran no task"]


def test_transfers_and_disk_access_of_a_task_are_placed_before_and_after_it() -> None:
    costs = {"transfer": 1.0, "deserialize": 0.5, "disk_read": 0.25, "disk_write": 2.0}
    found = list(trace.events(tables([task("a", 4, 5, **costs)], [member("a")])))
    assert_valid(found)
    second = 10**9
    assert tracks(found)[1, 1] == [
        (int(2.25 * second), int(3.25 * second), "transfer"),
        (int(3.25 * second), int(3.75 * second), "deserialise"),
        (int(3.75 * second), 4 * second, "disk-read"),
        (4 * second, 5 * second, "work"),
        (5 * second, 7 * second, "disk-write"),
    ]


def test_a_transfer_begins_after_the_previous_task_and_after_its_task_was_assigned() -> None:
    tasks = [task("a", 0, 1, disk_write=9.0), task("a", 1.5, 2, transfer=9.0)]
    tasks.append(task("b", 1, 2, assigned=0.75, transfer=9.0, deserialize=0.125))
    found = list(trace.events(tables(tasks, [member("a"), member("b")])))
    assert_valid(found)
    assert [event[2] for event in tracks(found)[1, 1]] == ["work", "disk-write", "work"]
    assert [(begin, name) for begin, _, name in tracks(found)[2, 1]] == [
        (750_000_000, "transfer"),
        (875_000_000, "deserialise"),
        (1_000_000_000, "work"),
    ]


def test_small_overlaps_by_clock_error_are_clipped_and_true_ones_get_a_track() -> None:
    tasks = [task("a", 0, 1.0005), task("a", 1, 2), task("b", 0, 3), task("b", 1, 2), task("b", 4, 5)]
    found = list(trace.events(tables(tasks, [member("a"), member("b")])))
    assert_valid(found)
    assert {track: len(each) for track, each in tracks(found).items()} == {(1, 1): 2, (2, 1): 2, (2, 2): 1}
    assert names(found, "thread_name") == ["thread 1", "thread 1", "thread 1, beside (1)"]


def test_counters_of_a_trace_count_running_and_waiting_tasks() -> None:
    found = list(trace.events(tables([task("a", 0, 1), task("a", 1, 2)], [member("a")])))
    counted = defaultdict(list)
    for event in found:
        if event["ph"] == "C":
            counted[event["name"]].append((event["ts"], event["args"]["tasks"]))
    assert counted["running tasks"] == [(0, 1), (1e6, 1), (2e6, 0)]
    assert counted["runnable tasks, waiting"] == [(0, 1), (1e6, 0), (2e6, 0)]


def test_a_trace_marks_when_a_worker_joined_late_or_left() -> None:
    gone = member("b", joined=0.5, left=1.5, reason="killed")
    found = list(trace.events(tables([task("a", 0, 2), task("b", 1, 1.25)], [member("a"), gone])))
    moments = [(event["pid"], event["name"], event["ts"]) for event in found if event["ph"] == "i"]
    assert moments == [(2, "joined", 0.5e6), (2, "left: killed", 1.5e6)]


def test_a_task_of_a_trace_has_its_key_size_retries_and_status() -> None:
    erred = task("a", 1, 2, status=1, retries=1)
    lost = task("a", 3, 4, status=2, thread=0)
    found = list(trace.events(tables([task("a", 0, 1, nbytes=28), erred, lost], [member("a")])))
    arguments = [event["args"] for event in found if event["ph"] == "X"]
    assert {"key": "work-a-0", "nbytes": 28} in arguments
    assert {"key": "work-a-1", "nbytes": 0, "retries": 1, "status": "erred"} in arguments
    assert {"key": "work-a-3", "nbytes": 0, "status": "lost"} in arguments


short = st.floats(0, 3, allow_nan=False)
random_task = st.builds(
    lambda worker, thread, start, length, assigned, costs: task(
        worker,
        start,
        start + length,
        thread=thread,
        assigned=min(assigned, start),
        runnable=min(assigned, start),
        **costs,
    ),
    *(st.sampled_from("ab"), st.integers(0, 2), st.floats(0, 5), short, short),
    st.fixed_dictionaries(dict.fromkeys(("transfer", "deserialize", "disk_read", "disk_write"), short)),
)


@given(st.lists(random_task, min_size=1, max_size=25))
def test_tasks_of_a_track_never_overlap_and_no_task_is_missing(tasks: list[dict[str, Any]]) -> None:
    tasks.append(task("a", 6, 7))
    found = list(trace.events(tables(tasks, [member("a"), member("b")])))
    assert_valid(found)
    assert sum(name == "work" for each in tracks(found).values() for _, _, name in each) == len(tasks)


# ------------------------------------------------------------------ the file


@pytest.mark.parametrize("count", [1, 3000])
def test_a_trace_is_written_as_gzipped_json_and_replaces_an_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(trace, "_BATCH", 500)
    path = tmp_path / "trace.json.gz"
    path.write_text("old")
    records = tables([task("a", i, i + 1) for i in range(count)], [member("a")])
    written = trace.write(records, path, title='"quoted"')
    with gzip.open(path, "rt") as stream:
        data = json.load(stream)
    assert len(data["traceEvents"]) == written
    assert data["traceEvents"] == json.loads(json.dumps(list(trace.events(records))))
    assert data["otherData"]["title"] == '"quoted"'
    assert_valid(data["traceEvents"])
    assert [child.name for child in tmp_path.iterdir()] == ["trace.json.gz"]


def test_counters_of_many_tasks_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "COUNTED", 50)
    records = tables([task("a", i, i + 1) for i in range(200)], [member("a")])
    assert sum(event["ph"] == "C" for event in trace.events(records)) == 100


def test_a_trace_without_tasks_or_without_a_folder_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        trace.write(tables([], [member("a")]), tmp_path / "t.json.gz")
    with pytest.raises(StoreError):
        trace.write(tables([task("a", 0, 1)], [member("a")]), tmp_path / "none" / "t.json.gz")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ which trial


def test_a_trace_shows_the_trial_that_the_verdict_is_about(trial: Any, finished: Any) -> None:
    run = finished(
        trial(10, 10, 10, records="r"), trial(300, 300, 3, repeat=0), trial(300, 300, 3, repeat=1, records="r")
    )
    assert trace.choose(run.trials, run.verdict) is run.trials[2]
    assert trace.choose(run.trials, None) is run.trials[2]


def test_a_trial_is_chosen_by_point_values_point_id_or_key(trial: Any, finished: Any) -> None:
    run = finished(*[trial(n, n, n, records="r", params={"seconds": 1.0, "mode": "x"}, repeat=r)
                     for n in (10, 20) for r in (0, 1)])  # fmt: skip
    first, second = run.trials[2:]
    for text in ("workers=20", "items=20,seconds=1", "workers=20, mode=x", first.point.id, first.point.id[:6]):
        assert trace.choose(run.trials, run.verdict, point=text) is first, text
    assert trace.choose(run.trials, run.verdict, trial=second.key) is second
    spoilt = replace(first, state="invalid")
    assert trace.choose([spoilt, second], run.verdict, point="workers=20") is second


@pytest.mark.parametrize(
    "given", [{"point": "workers=7"}, {"point": "none=1"}, {"trial": "zzz"}, {"point": "workers=x"}]
)
def test_choosing_an_unknown_trial_or_point_is_refused(trial: Any, given: dict[str, str]) -> None:
    one = trial(10, 10, 10, records="r")
    with pytest.raises(UsageError) as error:
        trace.choose([one], None, **given)
    assert one.key in error.value.next_step


def test_a_trial_without_records_cannot_be_traced(trial: Any) -> None:
    with pytest.raises(UsageError):
        trace.choose([trial(10, 10, 10)], None)
    with pytest.raises(UsageError):
        trace.choose([], None)


def test_arrows_lead_from_a_task_to_those_that_need_its_result() -> None:
    found = tables([task("a", 0, 1), task("b", 2, 3), task("b", 4, 5)], [member("a"), member("b")])
    found["dependencies"] = from_rows("dependencies", [{"task": 1, "needs": 0}, {"task": 2, "needs": 1}])
    arrows = [each for each in trace.events(found) if each["ph"] in "sf"]
    drawn = {(each["pid"], each["ph"]): each for each in arrows if each["id"] == 1}  # the one between workers is first
    slices = {each["args"]["key"]: each for each in trace.events(found) if each.get("cat") == trace.COMPUTE}
    made, needed = slices["work-a-0"], slices["work-b-2"]
    begin, end = drawn[made["pid"], "s"], drawn[needed["pid"], "f"]
    assert made["ts"] <= begin["ts"] < made["ts"] + made["dur"]
    assert end["ts"] == needed["ts"]
    assert len(arrows) == 4
