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
def test_apportioned_numbers_add_up_and_differ_from_exact_ones_by_less_than_one(amounts, total):
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
def test_seconds_are_shown_with_three_significant_digits_or_as_whole_numbers(value, text):
    assert seconds(value) == text


def test_an_estimate_shows_its_interval_unless_that_is_empty():
    assert run_tables.estimate(MeanInterval(0.5)) == "0.50"
    assert run_tables.estimate(MeanInterval(0.5, 0.5, 0.5)) == "0.50"
    assert run_tables.estimate(MeanInterval(0.5, 0.4, 0.625)) == "0.50 (0.40–0.62)"


def test_counts_are_rounded_and_get_thousands_separators():
    assert [count(value) for value in (3, 12345, 1.25, 99.9, 1234.5)] == ["3", "12,345", "1.2", "99.9", "1,234"]


def test_a_single_trial_is_shown_with_the_default_columns(trial):
    assert [column.title for column in run_tables.columns(summarise([trial(2, 2, 2)]))] == [
        "workers", "items", "tasks", "partitions", "workers used", "peak tasks", "time s", "best possible s",
        "efficiency",
    ]  # fmt: skip


def test_a_column_is_shown_only_if_its_values_differ_between_points(trial):
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


def test_worker_time_is_shown_for_the_point_of_the_first_finding(trial, finished):
    run = finished(trial(1, 1, 1), trial(200, 200, 2), trial(100, 100, 1))
    summaries = summarise(run.trials)
    worst = worker_time.worst_point(summaries, run.verdict)
    assert worst.point.id == run.verdict.findings[0].points[0]
    assert worker_time.worst_point(summaries, None).point.workers == 100
    assert worker_time.worst_point([], run.verdict) is None


def test_a_speedup_is_shown_only_for_points_in_both_runs(trial, finished):
    names, pairs = run_tables.compare(finished(trial(4, 4, 1)), finished(trial(4, 4, 4), trial(5, 5, 5)))
    assert [pair.speedup for pair in pairs] == [4.0, None]
    assert names == ()


def ran_on(trial, *clusters):
    return [trial(n, n, n, facts={"cluster": facts}) for n, facts in enumerate(clusters, 1)]


def on_slurm(replaced, *jobs):
    known = [{"id": name, "nodes": node, "queue_wait_s": wait} for name, node, wait in jobs]
    facts = {"kind": "slurm", "label": "scalescope-0", "jobs_replaced": replaced, "jobs": known}
    return {**facts, "slurm": {"jobs": known}}


def on_kubernetes(throttled, *pods):
    counters = {"scheduler": {}, "workers": {THROTTLED: {"sum": throttled, "most": throttled}}}
    return {"kind": "kubernetes", "pods": list(pods), "counters": counters}


def on_gpus(trial, workers, busy, **facts):
    made = trial(workers, 1, 1, facts=facts)
    return replace(made, metrics=replace(made.metrics, gpus=float(workers), gpu_busy=busy, elapsed_s=3600.0))


ONE, TWO, THREE = ("1", "n1", 2.0), ("2", "n1", 75.0), ("3", "n2", None)
SPOT, PLAIN = {"node": "n1", "instance_type": "g2-standard-8", "spot": True}, {"node": "n2"}
PRICE = {"worker_hour": 2.0, "currency": "USD"}
CLUSTERS = {
    "clusters that differ have a line each": lambda trial: [
        trial(1, 1, 1),
        *ran_on(trial, {"kind": "light"}),
        trial(3, 3, 3),
    ],
    "jobs are counted over all trials": lambda trial: ran_on(trial, on_slurm(0, ONE, TWO), on_slurm(1, ONE, THREE)),
    "nodes are counted over all trials": lambda trial: ran_on(
        trial, on_kubernetes(0.0, SPOT), on_kubernetes(1.5, SPOT, PLAIN)
    ),
    "one node of unknown type": lambda trial: ran_on(trial, on_kubernetes(0.0, PLAIN)),
    "idle GPUs cost money": lambda trial: [on_gpus(trial, 2, 0.75, price=PRICE), on_gpus(trial, 4, 0.5, price=PRICE)],
    "idle GPUs without a price": lambda trial: [on_gpus(trial, 2, 0.75)],
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_the_lines_about_the_cluster_match_their_golden_page(trial, finished, golden, case):
    run = finished(*CLUSTERS[case](trial))
    golden(*cluster_lines(run.sweep, run.trials))


def test_a_long_reason_of_a_failed_trial_is_shortened(trial):
    from scalescope.model.trial import TrialState

    long = "\n".join(f"line {i} " + "x" * 200 for i in range(50))
    (text,) = run_tables.reasons(summarise([trial(1, 1, 1, state=TrialState.FAILED, reason=long)]))
    assert len(text) < 700
    assert "…" in text
