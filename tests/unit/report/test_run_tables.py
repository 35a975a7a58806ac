from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.summary import MeanInterval, summarise
from scalescope.clusters.kubernetes.counters import THROTTLED
from scalescope.model.words import count, seconds
from scalescope.report import run_tables, worker_time
from scalescope.report.cluster_lines import cluster_lines

AMOUNTS = st.lists(st.floats(0, 1e12, allow_subnormal=False), min_size=1, max_size=12)


@given(AMOUNTS, st.integers(0, 200))
def test_apportioned_numbers_add_up_and_are_off_by_less_than_one(amounts, total):
    result = worker_time.apportion(amounts, total)
    whole = sum(amounts)
    assert sum(result) == (total if whole > 0 else 0)
    for amount, number in zip(amounts, result, strict=True):
        assert abs(number - (amount / whole * total if whole else 0)) < 1 + 1e-6
        assert number >= 0


def test_apportion_gives_the_rest_to_the_largest_remainders():
    assert worker_time.apportion([1, 1, 1], 100) == [34, 33, 33]
    assert worker_time.apportion([0.7, 99.2, 0.1], 100) == [1, 99, 0]
    assert worker_time.apportion([0, 0], 100) == [0, 0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.0123, "0.0123"),
        (1.2345, "1.23"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (1e-9, "0.000000"),
    ],
)
def test_seconds_have_three_digits_that_count(value, text):
    assert seconds(value) == text


def test_estimates():
    assert run_tables.estimate(MeanInterval(0.5)) == "0.50"
    assert run_tables.estimate(MeanInterval(0.5, 0.5, 0.5)) == "0.50"
    assert run_tables.estimate(MeanInterval(0.5, 0.4, 0.625)) == "0.50 (0.40–0.62)"


def test_counts():
    assert [count(value) for value in (3, 12345, 1.25, 99.9, 1234.5)] == ["3", "12,345", "1.2", "99.9", "1,234"]


def test_the_default_columns(trial):
    assert [column.title for column in run_tables.columns(summarise([trial(2, 2, 2)]))] == [
        "workers", "items", "tasks", "partitions", "workers used", "peak tasks", "time s", "best possible s",
        "efficiency",
    ]  # fmt: skip


def test_columns_are_those_that_say_something(trial):
    def titles(*trials):
        return [column.title for column in run_tables.columns(summarise(trials))]

    assert titles(trial(1, 1, 1))[:3] == ["workers", "items", "tasks"]
    assert "valid" not in titles(trial(1, 1, 1))
    assert "valid" in titles(trial(1, 1, 1), trial(1, 1, 1, repeat=1))
    varied = titles(*[trial(1, 1, 1, params={"seconds": s, "same": 1}) for s in (1, 2)])
    assert varied[:3] == ["workers", "items", "seconds"]
    assert "same" not in varied


def test_the_percentages_of_worker_time_add_up_to_a_hundred(trial):
    metrics = trial(7, 7, 3, stretch=1.1).metrics
    parts = worker_time.worker_time_parts(metrics)
    assert sum(part.percent for part in parts) == 100
    assert [part.name for part in parts] == ["busy", "no_runnable_task", "not_assigned"]


def test_worker_time_is_shown_where_the_first_finding_points(trial, finished):
    run = finished(trial(1, 1, 1), trial(200, 200, 2), trial(100, 100, 1))
    summaries = summarise(run.trials)
    worst = worker_time.worst_point(summaries, run.verdict)
    assert worst.point.id == run.verdict.findings[0].points[0]
    assert worker_time.worst_point(summaries, None).point.workers == 100
    assert worker_time.worst_point([], run.verdict) is None


def test_a_speedup_needs_both_sides(trial, finished):
    names, pairs = run_tables.compare(finished(trial(4, 4, 1)), finished(trial(4, 4, 4), trial(5, 5, 5)))
    assert [pair.speedup for pair in pairs] == [4.0, None]
    assert names == ()


def test_clusters_that_differ_have_a_line_each(trial, finished):
    run = finished(trial(1, 1, 1), trial(2, 2, 2, facts={"cluster": {"kind": "light"}}), trial(3, 3, 3))
    assert cluster_lines(run.sweep, run.trials) == (
        "Cluster: simulated, virtual clock. Shows how the real scheduler divides work. "
        "Cannot show contention between processes.",
        "Cluster: light.",
    )


def test_jobs_are_counted_over_all_trials(trial, finished):
    def facts(replaced, *jobs):
        known = [{"id": name, "nodes": node, "queue_wait_s": wait} for name, node, wait in jobs]
        cluster = {"kind": "slurm", "label": "scalescope-0", "jobs_replaced": replaced, "jobs": known}
        return {"cluster": {**cluster, "slurm": {"jobs": known}}}

    one, two, three = ("1", "n1", 2.0), ("2", "n1", 75.0), ("3", "n2", None)
    run = finished(trial(1, 1, 1, facts=facts(0, one, two)), trial(2, 2, 2, facts=facts(1, one, three)))
    assert cluster_lines(run.sweep, run.trials)[-1] == (
        "Jobs: up to 2 at a time, 3 in all, on 2 nodes; the longest waited 75.0 s in the queue; "
        "replaced after losses: 1."
    )


def test_nodes_are_counted_over_all_trials(trial, finished):
    def facts(throttled, *pods):
        counters = {"scheduler": {}, "workers": {THROTTLED: {"sum": throttled, "most": throttled}}}
        return {"cluster": {"kind": "kubernetes", "pods": list(pods), "counters": counters}}

    spot = {"node": "n1", "instance_type": "g2-standard-8", "spot": True}
    run = finished(trial(1, 1, 1, facts=facts(0.0, spot)), trial(2, 2, 2, facts=facts(1.5, spot, {"node": "n2"})))
    assert cluster_lines(run.sweep, run.trials)[-1] == (
        "Pods: on 2 nodes, 1 g2-standard-8 spot, 1 of unknown type; their CPU limit held workers up for 1.50 s in all."
    )
    run = finished(trial(1, 1, 1, facts=facts(0.0, {"node": "n2"})))
    assert cluster_lines(run.sweep, run.trials)[-1] == "Pods: on 1 node."


def test_what_idle_gpus_cost(trial, finished):
    def on_gpus(workers, gpus, busy, **facts):
        made = trial(workers, 1, 1, facts=facts)
        return replace(made, metrics=replace(made.metrics, gpus=gpus, gpu_busy=busy, elapsed_s=3600.0))

    price = {"worker_hour": 2.0, "currency": "USD"}
    run = finished(on_gpus(2, 2.0, 0.75, price=price), on_gpus(4, 4.0, 0.5, price=price))
    assert cluster_lines(run.sweep, run.trials)[-1] == "GPUs: 6 GPU-hours in trials, 2.5 of them idle, for 5.00 USD."
    run = finished(on_gpus(2, 2.0, 0.75))
    assert cluster_lines(run.sweep, run.trials)[-1] == "GPUs: 2 GPU-hours in trials, 0.5 of them idle."


def test_long_reasons_are_cut(trial):
    from scalescope.model.trial import TrialState

    long = "\n".join(f"line {i} " + "x" * 200 for i in range(50))
    (text,) = run_tables.reasons(summarise([trial(1, 1, 1, state=TrialState.FAILED, reason=long)]))
    assert len(text) < 700
    assert "…" in text
