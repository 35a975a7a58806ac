"""Flows of Prefect: their tasks come from its own Dask client, and their workers note what Prefect does around them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import only, watched

from scalescope.diagnosis import verdict
from scalescope.diagnosis.evidence.prefect_tasks import prefect_seconds
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Severity
from scalescope.model.records import FLOW as FLOW_ENGINE
from scalescope.model.sweep import Sweep
from scalescope.model.trial import RAN, TrialState

FLOW = "PrefectDaskClient-1"


def noted(prefix, tasks=80, where="", **seconds):
    return [
        (
            1_100.0,
            "waits",
            {"prefix": prefix, "what": f"Prefect.{what}", "where": where, "tasks": tasks, "seconds": each},
        )
        for what, each in seconds.items()
    ]


@pytest.fixture
def flow(cluster, task, graph):
    """Eighty tasks of 1 s on 8 workers, sent by Prefect, of which the workers noted these seconds."""

    def made(tasks=80, events=(), nbytes=1000, **seconds):
        return cluster(8, events=[*noted("load", **seconds), *events]).run(
            [task(1.0, "load")] * tasks, [graph(client=FLOW, nbytes=nbytes)]
        )

    return made


def test_a_healthy_flow(flow, find):
    assert not find(flow(function=76.0))
    assert not find(flow(function=30.0))  # what is around it takes less than twice as long as the function


def test_nothing_is_known_of_a_flow_whose_functions_were_not_noted(flow, find):
    assert not find(flow())
    assert prefect_seconds(flow()) == {}


@pytest.mark.parametrize("function", [1.0, 8.0, 20.0, 26.0])
def test_prefect_that_takes_longer_than_the_functions(flow, find, function):
    finding = only(find(flow(function=function)), "prefect-overhead")
    assert finding.lost_s == pytest.approx(80 - function)
    assert finding.severity is Severity.HIGH
    assert "for each of 80 tasks (`load`)" in finding.summary
    assert "`load.map(batches)`" in finding.remedy


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_first_tasks_of_a_worker_in_which_it_imports_prefect(cluster, task, graph, find, rounds):
    """The first task on each of 8 workers takes 4 s, all others 1 s; the function takes 0.9 s."""
    tasks = [task(4.0, "load")] * 8 + [task(1.0, "load")] * 8 * (rounds - 1)
    events = noted("load", len(tasks), function=0.9 * len(tasks))
    observed = cluster(8, events=events).run(tasks, [graph(client=FLOW)])
    assert prefect_seconds(observed)["load"].first == pytest.approx(8 * 3.0, rel=0.05)
    finding = only(find(observed), "prefect-overhead")
    assert finding.severity is Severity.INFO
    assert "The first tasks on 8 workers took 3" in finding.summary


@pytest.mark.parametrize(("what", "remedy"), [("persist", "persist_result=False"), ("hash", "cache_policy=NO_CACHE")])
def test_prefect_that_writes_large_results_or_hashes_large_inputs(flow, find, what, remedy):
    finding = only(find(flow(function=20.0, **{what: 50.0})), "prefect-overhead")
    assert finding.lost_s == pytest.approx(60.0)
    assert remedy in finding.remedy


@pytest.mark.parametrize(("what", "remedy"), [("persist", "persist_result=False"), ("hash", "cache_policy=NO_CACHE")])
def test_results_and_hashes_count_where_functions_take_longer(flow, find, what, remedy):
    finding = only(find(flow(function=45.0, **{what: 25.0})), "prefect-overhead")
    assert finding.lost_s == pytest.approx(25.0)
    assert remedy in finding.remedy
    assert not find(flow(function=70.0, **{what: 5.0}))


def test_prefect_that_looks_through_what_calls_carry(flow, find):
    finding = only(find(flow(function=8.0, nbytes=80 * 24_000_000)), "prefect-overhead")
    assert "pass `load` less" in finding.remedy


@pytest.mark.parametrize("seconds", [9.0, 20.0, 60.0])
def test_servers_that_workers_start(flow, find, seconds):
    (started,) = noted("load", tasks=8, server=seconds)
    finding = only(find(flow(function=80.0 - seconds, events=[started])), "prefect-server-in-workers")
    assert finding.lost_s == pytest.approx(seconds)
    assert finding.summary.startswith("Each of 8 worker processes started a Prefect server of its own ")
    assert "PREFECT_API_URL" in finding.remedy


def test_waits_for_retries(flow, find):
    finding = only(find(flow(function=40.0, retry=30.0, **{"raised OSError": 10.0})), "retried-tasks")
    assert finding.lost_s == pytest.approx(40.0)
    assert "(`OSError`)" in finding.summary
    assert "retry_delay_seconds" in finding.remedy


def test_a_concurrency_limit(flow, find):
    event = (
        1_100.0,
        "waits",
        {"prefix": "load", "what": 'concurrency("db")', "where": "", "tasks": 80, "seconds": 40.0},
    )
    finding = only(find(flow(function=38.0, events=[event])), "waiting-tasks")
    assert finding.lost_s == pytest.approx(40.0)
    assert "prefect gcl" in finding.remedy


def test_a_limit_that_holds_nobody_back(flow, find):
    event = (
        1_100.0,
        "waits",
        {"prefix": "load", "what": 'concurrency("db")', "where": "", "tasks": 80, "seconds": 30.0},
    )
    assert "waiting-tasks" not in find(flow(function=38.0, release=10.0, events=[event]))


@pytest.mark.parametrize(("client", "said"), [("Client-1", "client.map(load"), (FLOW, "`load.map(items)`")])
def test_a_remedy_speaks_the_language_of_who_sent_the_tasks(cluster, task, graph, find, client, said):
    graphs = [graph(after=i - 1 if i else None, client=client) for i in range(12)]
    finding = find(cluster(4).run([task(1.0, "load", graph=i) for i in range(12)], graphs))["results-awaited-in-loop"]
    assert said in finding.remedy


def test_what_prefect_does_once_around_a_flow_is_no_fault(flow, find):
    observation = watched(
        flow(function=79.0), (10.0, ("f.py:3 f", "wait", 1)), (3.0, ("f.py:9 <module>", FLOW_ENGINE, 0))
    )
    finding = only(find(observation), "client-busy")
    assert finding.severity is Severity.INFO
    assert "around the flow" in finding.summary


def test_a_flow_that_waits_for_one_result_before_it_sends_the_next_is_not_slow(cluster, task, graph, find):
    graphs = [graph(0.7 * i, client=FLOW) for i in range(20)]
    observation = cluster(8).run([task(1.0, "load", graph=i) for i in range(20)], graphs)
    assert "slow-submission" in find(observation)
    found = find(watched(observation, (15.0, ("f.py:3 f", "a.result", 1))))
    assert "slow-submission" not in found
    assert "without `.result()` in between" in found["few-tasks-in-flight"].remedy


# ------------------------------------------------------------------ what ends before its tasks


def also_sent(observation, tasks):
    """Add tasks to the first graph that have no row."""
    observation.tables["graphs"]["tasks"][0] += tasks
    return observation


def unfinished(left=(), cancelled=()):
    return (1_000.0, "unfinished", {"left": dict(left), "cancelled": dict(cancelled)})


def test_few_that_had_not_ended_are_nothing(flow, find):
    assert not find(also_sent(flow(function=79.0, events=[unfinished(left={"load": 7})]), 7))


def test_what_was_sent_before_is_of_somebody_else(flow, find):
    assert not find(flow(function=79.0, events=[unfinished(left={"theirs": 90})]))


def test_a_cluster_is_watched_until_any_time(flow, find):
    observation = also_sent(flow(function=79.0, events=[unfinished(left={"load": 90})]), 90)
    assert not find(replace(observation, trial=replace(observation.trial, facts={RAN: "cluster"})))


def test_what_a_client_drops_while_others_finish_is_its_own_affair(cluster, task, graph, find):
    observation = cluster(8, events=[unfinished(cancelled={"load": 400})]).run([task(1.0)] * 80, [graph()])
    assert not find(also_sent(observation, 400))


@pytest.mark.parametrize("told", [unfinished(left={"load": 20}), unfinished(cancelled={"load": 20})])
def test_a_flow_that_ended_before_its_tasks(flow, find, told):
    finding = only(find(also_sent(flow(function=79.0, events=[told]), 20)), "unfinished-tasks")
    assert finding.severity is Severity.HIGH
    assert "20 tasks (`load`) had not finished" in finding.summary
    assert "prefect.futures.wait" in finding.remedy


def test_a_flow_that_ended_before_any_task_did_is_no_fault_of_the_machine(cluster, graph, find):
    observation = cluster(2, events=[unfinished(cancelled={"say_hello": 4})]).observe(
        [], [graph(client=FLOW)], [0.0], facts={RAN: "script"}, reason="no task was recorded"
    )
    finding = only(find(also_sent(observation, 4)), "unfinished-tasks")
    assert finding.summary == "The flow ended while 4 tasks (`say_hello`) had not finished: they were cancelled."
    sweep = Sweep(
        "flow.py", cluster=cluster_spec({"kind": "scheduler", "address": "inproc:0"}), points=({"workers": 2},)
    )
    trial = replace(observation.trial, findings=(finding,))
    assert [each.code for each in verdict.diagnose(sweep, [trial]).findings] == ["unfinished-tasks"]


@pytest.mark.parametrize("given", [{"state": TrialState.FAILED}, {"state": TrialState.INVALID, "reason": "timed out"}])
def test_work_that_raised_has_another_fault(cluster, task, graph, find, given):
    observation = cluster(4, events=[unfinished(left={"load": 90})]).run([task(1.0)] * 40, [graph()], **given)
    assert "unfinished-tasks" not in find(also_sent(observation, 90))
