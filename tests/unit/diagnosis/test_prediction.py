"""No finding predicts a time shorter than the graph allows after its remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import Cluster, Graph, Task

from scalescope.diagnosis import causes
from scalescope.diagnosis.cause import GAIN, Cause, Term
from scalescope.diagnosis.causes import by_code
from scalescope.diagnosis.observation import Remedy, TrialCause
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Sweep

CODES = tuple(by_code())
SECONDS = st.sampled_from([0.0005, 0.1, 0.5, 1.0, 1.0, 1.0, 10.0])


def allowed_s(cause: Cause, metrics: Metrics, threads: int, shorter_s: float) -> float:
    """max(T1 / P, T∞) of the graph that the remedy leaves; the harness has no client that computes."""
    work_s = min(metrics.work_s, metrics.worker_time_s["busy"]) - shorter_s * (Term.WORK in cause.changes)
    by_work = 0.0 if Term.THREADS in cause.changes else work_s / threads
    return max(by_work, 0.0 if Term.SPAN in cause.changes else metrics.span_s)


def measured(observation, before_s: float = 0.0):
    """The trial with its real elapsed time; the test harness gives every trial one second."""
    metrics = observation.trial.metrics
    metrics = replace(metrics, elapsed_s=metrics.makespan_s + before_s)
    return replace(observation, trial=replace(observation.trial, metrics=metrics))


@st.composite
def trials(draw):
    workers, rounds = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    tasks = []
    for number in range(rounds):
        names, seconds = draw(st.sampled_from(["load", "work"])), draw(st.lists(SECONDS, min_size=1, max_size=14))
        on = draw(st.sampled_from([(), (), (0,), (0, 1)]))
        first = draw(st.sampled_from([(), (0,), (len(tasks),)])) if tasks else ()
        needs = tuple(each for each in first if each < len(tasks))
        tasks += [Task(each, names, needs, number, on, draw(st.booleans())) for each in seconds]
    graphs = [
        Graph(draw(st.sampled_from([0.0, 0.05, 2.0])), number - 1 if number else None) for number in range(rounds)
    ]
    slower = draw(st.sampled_from([{}, {}, {0: 4.0}]))
    late = draw(st.sampled_from([{}, {}, {1: 3.0}]))
    waits = {"prefix": "work", "what": "Lock.acquire", "where": "job.py:3", "tasks": 1}
    events = [(0.1, "waits", waits | {"seconds": draw(st.sampled_from([1.0, 20.0]))})] * draw(st.integers(0, 1))
    on = Cluster(workers, slower=slower, joined=late, dispatch_s=draw(st.sampled_from([0.0, 0.01])), events=events)
    return measured(on.run(tasks, graphs), draw(st.sampled_from([0.0, 1.0])))


@settings(max_examples=40, deadline=None)
@given(trials())
def test_no_finding_predicts_a_time_below_what_the_graph_of_its_trial_allows(observation):
    found = causes.find(observation)
    trial = replace(observation.trial, findings=found)
    check(found, trial.metrics, observation.threads)
    check(diagnose(Sweep("futures-map"), [trial]).findings, trial.metrics, observation.threads)


def check(findings: tuple[Finding, ...], metrics: Metrics, threads: int) -> None:
    for finding in findings:
        if finding.gain is None:
            continue
        least = allowed_s(by_code()[finding.code], metrics, threads, finding.lost_s)
        assert finding.gain.predicted_s >= least * (1 - 1e-9)
        assert finding.gain.now_s == metrics.elapsed_s
        assert finding.gain.predicted_s <= (1 - GAIN) * finding.gain.now_s * (1 + 1e-9)


@settings(max_examples=300, deadline=None)
@given(code=st.sampled_from(CODES), saved_s=st.floats(0, 1e6), shorter_s=st.floats(0, 1e3), late_s=st.floats(0, 50))
def test_no_cause_predicts_a_time_below_its_bound_whatever_saving_it_claims(code, saved_s, shorter_s, late_s, small):
    cause, observation = by_code()[code], measured(small, late_s)
    metrics = observation.trial.metrics
    gain = cause.gain(metrics, observation.threads, saved_s, shorter_s=shorter_s)
    if not cause.predicts:
        assert gain is None
    elif gain is not None:
        assert gain.predicted_s >= allowed_s(cause, metrics, observation.threads, shorter_s) * (1 - 1e-9)
    else:
        possible_s = max(metrics.elapsed_s - saved_s, allowed_s(cause, metrics, observation.threads, shorter_s))
        assert metrics.elapsed_s - possible_s < GAIN * metrics.elapsed_s * (1 + 1e-9)
    if isinstance(cause, TrialCause):
        finding = cause.finding(
            observation,
            1.0,
            "S.",
            Remedy("do it", saved_s=saved_s, shorter_s=shorter_s),
            Evidence("e", 1, "t"),
            confidence=1,
        )
        assert finding.gain == (None if finding.severity is Severity.INFO else gain)


@pytest.fixture(scope="session")
def small():
    """Sixteen tasks and a chain on four workers."""
    return Cluster(4).run([*(Task(1.0) for _ in range(16)), *(Task(2.0, "chain", (14 + n,)) for n in range(1, 4))])


def test_a_remedy_that_saves_time_gets_a_predicted_gain_unless_its_cause_limits_trust(small):
    metrics = measured(small, 10.0).trial.metrics
    gain = by_code()["client-busy"].gain(metrics, 4, 10.0)
    assert (gain.now_s, gain.predicted_s) == (metrics.elapsed_s, pytest.approx(metrics.makespan_s))
    for code in ("host-overloaded", "oversubscribed-threads"):
        assert by_code()[code].gain(metrics, 4, 10.0) is None


def test_no_gain_is_predicted_beyond_what_the_host_can_emulate():
    def predicted(per_task_s: float):
        facts = {"cluster": {"limit": {"seconds_per_task": per_task_s, "tolerance": 0.25}}}
        observation = Cluster(4).run([Task(12.0), *(Task(1.0) for _ in range(20))], facts=facts)
        return {each.code: each.gain for each in causes.find(measured(observation))}["straggler"]

    assert 32 / 4 <= predicted(0.001).predicted_s < 12
    assert predicted(1.0) is None
