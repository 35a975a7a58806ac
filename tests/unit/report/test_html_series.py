from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.measure import stages_of
from scalescope.analysis.worker_time import busy_by_worker
from scalescope.model.records import from_rows
from scalescope.report.html import gantt, series
from scalescope.report.html.stages import Groups

Task = tuple[int, int, float, float]
"""Worker, thread, begin, duration."""


def attempts(tasks: Sequence[Task], *, workers: int = 3, threads: int = 1, **columns: Sequence[Any]) -> Attempts:
    rows = [
        {"key": f"k{i}", "prefix": "p", "group": "p", "worker": f"w{worker}", "thread": thread, "runnable": 100.0}
        | {"assigned": 100.0, "start": 100.0 + begin, "stop": 100.0 + begin + seconds, "done": 100.0 + begin + seconds}
        | {"span": seconds}
        | {name: values[i] for name, values in columns.items()}
        for i, (worker, thread, begin, seconds) in enumerate(tasks)
    ]
    there = [{"worker": f"w{i}", "nthreads": threads, "joined": 90.0} for i in range(workers)]
    return Attempts.read({"tasks": from_rows("tasks", rows), "workers": from_rows("workers", there)})


def drawn(found: Attempts, **limits: int) -> gantt.Bars:
    groups = Groups.of(stages_of(found), found)
    lines = gantt.rows_of(found, np.arange(len(found.addresses)))
    return gantt.bars(found, lines.of_attempt, gantt.stage_codes(found, groups), **limits)


# ------------------------------------------------------------------ rows


def test_every_thread_has_a_gantt_row_in_the_order_of_workers() -> None:
    found = attempts([(0, 7, 0, 1), (0, 8, 0, 1), (1, 9, 0, 1)], threads=2)
    lines = gantt.rows_of(found, np.array([2, 0, 1]))
    assert lines.worker.tolist() == [2, 2, 0, 0, 1, 1]
    assert lines.of_attempt.tolist() == [2, 3, 4]


def test_workers_without_a_task_have_no_gantt_row_among_many_workers() -> None:
    found = attempts([(5, 1, 0, 1), (70, 1, 0, 1)], workers=100)
    lines = gantt.rows_of(found, np.arange(100))
    assert lines.worker.tolist() == [5, 70]
    assert lines.of_attempt.tolist() == [0, 1]


def test_a_thread_and_its_successor_share_a_gantt_row_unless_their_tasks_overlap() -> None:
    one_after_the_other = attempts([(0, 1, 0, 1), (0, 2, 1, 1)], workers=1)
    assert gantt.rows_of(one_after_the_other, np.array([0])).of_attempt.tolist() == [0, 0]
    seceded = attempts([(0, 1, 0, 2), (0, 2, 1, 1)], workers=1)
    assert gantt.rows_of(seceded, np.array([0])).of_attempt.tolist() == [0, 1]


# ------------------------------------------------------------------ bars


def test_each_task_has_its_own_bar_if_there_are_few() -> None:
    bars = drawn(attempts([(0, 1, 0, 1), (0, 1, 1, 2), (1, 1, 0, 3)]))
    assert list(zip(bars.row.tolist(), bars.left.tolist(), bars.right.tolist(), strict=True)) == [
        (0, 0.0, 1.0),
        (0, 1.0, 3.0),
        (1, 0.0, 3.0),
    ]
    assert (bars.count == 1).all()
    assert bars.merged_below_s == bars.left_out == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 2), st.floats(0, 50), st.floats(0.001, 20)), min_size=1, max_size=60
    ),
    st.integers(1, 30),
)
def test_bars_never_exceed_the_limit_and_count_every_task_once(tasks: list[Task], most: int) -> None:
    found = attempts(tasks)
    bars = drawn(found, most=most, plain=0)
    assert len(bars.row) <= most
    assert int(bars.count.sum()) + bars.left_out == bars.tasks == len(tasks)
    assert (bars.left <= bars.right).all()
    assert (np.diff(bars.row.astype(int)) >= 0).all()
    assert float(bars.right.max()) <= found.makespan * (1 + 1e-6)


@settings(max_examples=40)
@given(st.lists(st.floats(0.001, 2), min_size=1, max_size=200))
def test_merged_bars_are_at_most_one_step_away_from_the_tasks(durations: list[float]) -> None:
    begins = np.cumsum(durations) - durations
    found = attempts([(0, 1, float(b), d) for b, d in zip(begins, durations, strict=True)], workers=1)
    bars = drawn(found, most=1000, plain=0)
    several = bars.count > 1
    assert (bars.right[several] - bars.left[several] <= 2 * bars.merged_below_s + 1e-4).all()
    busy = float((found.stop - found.start).sum())
    assert float((bars.right.astype(float) - bars.left).sum()) == pytest.approx(busy, rel=1e-4, abs=1e-3)


def test_a_merged_bar_has_the_colour_of_its_main_stage_unless_a_task_was_lost() -> None:
    short = 0.0001
    tasks = [(0, 1, i * short, short) for i in range(10)] + [(0, 1, 1.0, 9.0)]
    groups = ["a"] * 2 + ["b"] * 8 + ["c"]
    found = attempts(tasks, workers=1, group=groups, prefix=groups)
    bars = drawn(found, plain=0)
    titles = [stage.group for stage in Groups.of(stages_of(found), found).largest(8)]
    assert [titles[code] for code in bars.stage.tolist()] == ["b", "c"]
    with_loss = attempts(tasks, workers=1, group=groups, prefix=groups, status=[0] * 5 + [1] + [0] * 5)
    assert drawn(with_loss, plain=0).stage.tolist()[0] == gantt.LOST


def test_stages_beyond_the_eighth_share_one_colour() -> None:
    names = [f"s{i}" for i in range(12)]
    found = attempts([(0, 1, i, 1 - i / 100) for i in range(12)], group=names, prefix=names)
    codes = gantt.stage_codes(found, Groups.of(stages_of(found), found))
    assert codes.tolist() == [*range(8), *[gantt.OTHER] * 4]


def test_stages_with_the_same_prefix_have_different_titles() -> None:
    groups = ["load-0123456789abcdef", "load-fedcba9876543210", "sum-11112222"]
    found = attempts([(0, 1, i, 1) for i in range(3)], group=groups, prefix=["load", "load", "sum"])
    titles = Groups.of(stages_of(found), found).titles
    assert titles == {groups[0]: "load …abcdef", groups[1]: "load …543210", groups[2]: "sum"}


# ------------------------------------------------------------------ heat map and memory


def test_the_heat_map_has_the_busiest_worker_on_top() -> None:
    found = attempts([(1, 1, 0, 4), (2, 1, 2, 2)])
    edges = np.linspace(0, 4, 5)
    heat = series.heat(found, busy_by_worker(found, edges), edges)
    assert heat.order.tolist() == [1, 2, 0]
    assert heat.busy.tolist() == [1.0, 0.5, 0.0]
    assert heat.share.tolist() == [[255] * 4, [0, 0, 255, 255], [0] * 4]


def test_rows_of_the_heat_map_average_several_workers_if_there_are_many() -> None:
    found = attempts([(0, 1, 0, 2), (1, 1, 0, 1)], workers=5)
    edges = np.linspace(0, 2, 3)
    heat = series.heat(found, busy_by_worker(found, edges), edges, most_rows=2)
    assert heat.workers == 3
    assert heat.share.tolist() == [[170, 85], [0, 0]]


def memory_rows(worker: str, *samples: tuple[float, int]) -> list[dict[str, Any]]:
    return [{"worker": worker, "time": 100.0 + time, "rss": rss, "managed": rss // 2} for time, rss in samples]


def test_memory_is_summed_over_workers_and_kept_separate_for_the_scheduler() -> None:
    found = attempts([(0, 1, 0, 10)])
    rows = [*memory_rows("w0", (0, 10), (5, 30)), *memory_rows("w1", (0, 20), (5, 20))]
    rows += memory_rows("scheduler", (0, 7), (5, 8))
    memory = series.memory({"memory": from_rows("memory", rows)}, found, bins=11)
    assert memory is not None
    assert memory.processes == 2
    assert memory.rss[[0, 4, 5, 10]].tolist() == [30, 30, 50, 50]
    assert memory.managed[[0, 5]].tolist() == [15, 25]
    assert memory.highest[[0, 5]].tolist() == [20, 30]
    assert memory.scheduler[[0, 5]].tolist() == [7, 8]
    assert not memory.spilled.any()


def test_the_memory_of_a_worker_ends_with_its_last_sample() -> None:
    found = attempts([(0, 1, 0, 10)])
    rows = memory_rows("w0", (0, 10), (1, 10), (2, 10))
    memory = series.memory({"memory": from_rows("memory", rows)}, found, bins=11)
    assert memory is not None
    assert memory.rss.tolist() == [10] * 4 + [0] * 7


@pytest.mark.parametrize("tables", [{}, {"memory": {}}, {"memory": {"time": [], "worker": []}}])
def test_the_memory_series_is_none_without_recorded_memory(tables: dict[str, Any]) -> None:
    assert series.memory(tables, attempts([(0, 1, 0, 1)])) is None
