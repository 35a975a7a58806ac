"""One point of a user's own function: the cause is named first, and nothing is accused twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.small_cluster import Cluster, Task, in_turn, standing

from scalescope.diagnosis import causes
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import StandingTasks, Standstill
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import TrialState

OWN = Sweep("mine.py:run")


def verdict(*observations, items=None):
    """The verdict on trials of one point or several."""
    trials = []
    for i, observation in enumerate(observations):
        trial = observation.trial
        if items is not None:
            trial = replace(trial, point=Point(trial.point.workers, params={"items": items}))
        trials.append(replace(trial, key=f"t{i}", repeat=i, findings=causes.find(observation)))
    return diagnose(OWN, trials)


def codes(verdict):
    return [finding.code for finding in verdict.findings]


@pytest.mark.parametrize("workers", [4, 20, 100])
@pytest.mark.parametrize("items", [None, 30])
def test_a_loop_that_awaits_results_is_found_as_such_and_not_as_too_few_partitions(workers, items, golden_once):
    tasks = [Task(1.0, "inc", graph=i) for i in range(30)]
    graphs = in_turn(30, 0.005)
    found = golden_once(verdict(Cluster(workers).run(tasks, graphs), items=items))
    assert codes(found) == ["results-awaited-in-loop"]
    assert found.severity is Severity.HIGH


@pytest.mark.parametrize("workers", [4, 20, 100])
def test_a_worker_restriction_is_named_first_in_the_verdict(workers, golden_once):
    found = golden_once(verdict(Cluster(workers).run([Task(1.0, "inc", on=(0,))] * 3 * workers)))
    assert codes(found)[0] == "worker-restriction"
    assert found.severity is Severity.HIGH
    assert "idle-workers-cause-unknown" not in codes(found)


CHAIN = [Task(1.0, needs=(i - 1,) if i else ()) for i in range(200)]


@pytest.mark.parametrize(
    ("workers", "tasks", "items", "code"),
    [
        *[(n, [Task(12.0 if i == 3 else 1.0) for i in range(n * 2)], None, "straggler") for n in (4, 20, 100)],
        *[(n, CHAIN[: 2 * n], None, "sequential-graph") for n in (10, 100)],
        (100, [Task(128.0)] * 3, 300, "too-few-partitions"),
        (100, [Task(1.0)] * 110, None, "uneven-waves"),
    ],
)
def test_a_cause_that_explains_all_is_the_only_finding(workers, tasks, items, code):
    assert codes(verdict(Cluster(workers).run(tasks), items=items)) == [code]


def test_too_few_partitions_and_a_straggler_are_each_charged_their_own_part():
    run = Cluster(100).run([Task(5.0 if i == 3 else 1.0) for i in range(60)])
    found = verdict(run)
    assert codes(found) == ["straggler", "too-few-partitions"]
    straggler, few = found.findings
    assert straggler.lost_s == pytest.approx(59 * 4)
    assert few.lost_s == pytest.approx(40 * 5)
    assert straggler.lost_s + few.lost_s == pytest.approx(run.seconds("no_runnable_task", "tail"))


def test_chains_with_long_transfers_between_tasks_are_a_sequential_graph(golden):
    """Six chains would keep six of ten threads busy, if their tasks did not fetch for half a second each."""
    chains = [Task(1.0, needs=(i - 6,) if i >= 6 else (), transfer=0.5 if i >= 6 else 0.0) for i in range(120)]
    found = verdict(Cluster(10).run(chains))
    assert codes(found)[0] == "sequential-graph"
    golden(found.findings[0])


def test_the_cause_that_loses_most_comes_first():
    """A minute of tasks that are bound to one worker, and a straggler among the others."""
    tasks = [Task(1.0, "write", on=(0,)) for _ in range(60)] + [Task(4.0 if i == 7 else 1.0) for i in range(60)]
    found = verdict(Cluster(10).run(tasks))
    assert codes(found)[0] == "worker-restriction"
    high = [finding.lost_s for finding in found.findings if finding.severity is Severity.HIGH]
    assert high == sorted(high, reverse=True)


# ------------------------------------------------------------------ merging


def known(code, lost_s, severity=Severity.MEDIUM):
    return Finding(code, severity, "It is so.", "mend it", evidence=(Evidence("e", 1, "s"),), lost_s=lost_s)


def unexplained():
    """Nine of ten threads are idle though tasks wait, for no reason that shows."""
    rows = [
        {
            "key": f"work-{i}", "prefix": "work", "group": "work", "worker": f"tcp://10.0.0.{i % 10}:4000",
            "runnable": 0.0, "assigned": i + 0.5, "start": i + 0.5, "stop": i + 1.5, "done": i + 1.5, "span": 1.0,
        }
        for i in range(40)
    ]  # fmt: skip
    return Cluster(10).observe(rows).trial


def test_idle_time_stays_unexplained_if_findings_explain_little_of_it():
    trial = unexplained()
    assert codes(diagnose(OWN, [trial])) == ["idle-workers-cause-unknown"]
    idle = 9 / 10 * 10 * trial.metrics.makespan_s
    little = replace(trial, findings=(known("memory-spill", 0.2 * idle),))
    assert codes(diagnose(OWN, [little])) == ["memory-spill", "idle-workers-cause-unknown"]
    much = replace(trial, findings=(known("memory-spill", 0.6 * idle),))
    assert codes(diagnose(OWN, [much])) == ["memory-spill"]
    told = replace(trial, findings=(known("memory-spill", 0.6 * idle, Severity.INFO),))
    assert "idle-workers-cause-unknown" in codes(diagnose(OWN, [told]))


@pytest.mark.parametrize(("width", "said"), [(4, "results-awaited-in-loop"), (8, "too-few-partitions")])
def test_narrow_rounds_are_found_either_as_awaited_in_loop_or_as_too_few_partitions(width, said, golden):
    tasks = [Task(1.0, graph=i // width) for i in range(10 * width)]
    graphs = in_turn(10, 0.0)
    found = golden(verdict(Cluster(32).run(tasks, graphs)))
    assert codes(found) == [said]


def test_a_failed_workload_is_reported_once_with_the_meaning_of_its_error():
    raised = "the workload raised httpx.PoolTimeout"
    failed = replace(Cluster(4).run([Task(1.0)]).trial, state=TrialState.FAILED, reason=raised, metrics=None)
    found = diagnose(OWN, [failed])
    assert codes(found) == ["failed-trials"]
    assert "PREFECT_API_REQUEST_TIMEOUT" in found.findings[0].summary


def test_a_finding_in_one_of_three_trials_is_not_reported():
    trial = Cluster(4).run([Task(1.0)] * 8).trial
    trials = [replace(trial, key=f"t{i}", repeat=i) for i in range(3)]
    trials[0] = replace(trials[0], findings=(known("straggler", 2.0),))
    assert codes(diagnose(OWN, trials)) == ["healthy"]
    trials[1] = replace(trials[1], findings=(known("straggler", 1.0),))
    found = diagnose(OWN, trials)
    assert codes(found) == ["straggler"]
    assert found.findings[0].lost_s == 3.0


def test_the_cause_of_a_standstill_is_named_before_the_invalid_trials():
    where = "mine.py:7 in outer"
    waiting = StandingTasks("outer", 4, True, where, "result (client.py)", "Client", "", 4)
    stopped = Standstill(52.0, 4, 4, 6, 2, 0, (waiting,))
    found = verdict(standing(Cluster(4), stopped))
    assert codes(found) == ["nested-client", "invalid-trials"]
    locked = replace(stopped, groups=(replace(waiting, waits_for="Semaphore", call="__enter__ (semaphore.py)"),))
    assert codes(verdict(standing(Cluster(4), locked))) == ["waiting-tasks", "invalid-trials"]
    away = replace(waiting, holds=False, waits_for="", problem="no worker may run it: it asks for resources GPU=1")
    found = verdict(standing(Cluster(4), replace(stopped, groups=(away,))))
    assert codes(found) == ["worker-restriction", "invalid-trials"]


@pytest.mark.parametrize(("saved_s", "clusters", "found"), [(9.0, 4, True), (0.9, 4, False), (9.0, 2, False)])
def test_a_cluster_made_in_each_round_is_named_first_with_the_time_that_it_costs_the_script(
    saved_s, clusters, found, golden_once
):
    run = Cluster(2).run([Task(0.1), Task(0.1), Task(0.4, needs=(0, 1))])
    rounds = {"clusters": clusters, "saved_s": saved_s, "script_s": 12.0}
    facts = {"ran": "script", "rounds": rounds, "cluster": {"made_at": "job.py:7 in report"}}
    judged = verdict(replace(run, trial=replace(run.trial, facts=facts)))
    assert ("cluster-in-each-round" in codes(judged)) == found
    if found:
        assert codes(golden_once(judged))[0] == "cluster-in-each-round"
        assert "idle-workers-cause-unknown" not in codes(judged)
        assert judged.findings[0].gain.predicted_s == 3.0
