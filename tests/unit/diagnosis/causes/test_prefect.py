"""Flows of Prefect: its own Dask client sends the tasks, and workers record what Prefect does around them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import only, watched
from support.small_cluster import Cluster, Graph, Task, find, in_turn

from scalescope.diagnosis import verdict
from scalescope.diagnosis.evidence.prefect_tasks import prefect_seconds
from scalescope.diagnosis.evidence.process_end import untold
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Severity
from scalescope.model.records import FLOW as FLOW_ENGINE
from scalescope.model.sweep import Sweep
from scalescope.model.trial import RAN, TrialState

FLOW = "PrefectDaskClient-1"


def noted(prefix, tasks=80, **seconds):
    told = {"prefix": prefix, "where": "", "tasks": tasks}
    return [(1_100.0, "waits", told | {"what": f"Prefect.{what}", "seconds": each}) for what, each in seconds.items()]


def flow(events=(), nbytes=1000, **seconds):
    """Eighty tasks of 1 s on 8 workers, sent by Prefect, of which the workers noted these seconds."""
    run = Cluster(8, events=[*noted("load", **seconds), *events])
    return run.run([Task(1.0, "load")] * 80, [Graph(client=FLOW, nbytes=nbytes)])


def test_prefect_overhead_is_not_found_if_functions_take_a_good_part_of_the_time_or_are_unrecorded():
    assert not find(flow(function=76.0))
    assert not find(flow(function=30.0))  # Prefect takes less than twice as long as the function
    assert not find(flow())
    assert prefect_seconds(flow()) == {}


def test_prefect_overhead_has_the_tasks_per_second_of_the_flow_and_its_request_time_as_evidence():
    """A task every 0.5 s, each with 0.2 s of requests to the server."""
    sent = [Graph(at=0.5 * i, client=FLOW) for i in range(40)]
    run = Cluster(8, events=noted("load", 40, function=4.0, api=8.0)).run(
        [Task(2.0, "load", graph=i) for i in range(40)], sent
    )
    finding = find(run)["prefect-overhead"]
    figures = {each.what: each.value for each in finding.evidence}
    assert figures["tasks that the flow sends in a second"] == pytest.approx(2.0, rel=0.05)
    assert figures["seconds of requests to the Prefect server for each task"] == pytest.approx(0.2)
    assert finding.lost_s > 60  # requests are Prefect's time, too


@pytest.mark.parametrize("function", [1.0, 8.0, 20.0, 26.0])
def test_prefect_taking_longer_than_the_functions_is_found_as_prefect_overhead(function, golden_once):
    finding = golden_once(only(find(flow(function=function)), "prefect-overhead"))
    assert finding.lost_s == pytest.approx(80 - function)
    assert finding.severity is Severity.HIGH


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_imports_of_prefect_in_first_tasks_are_only_information(rounds, golden_once):
    """The first task on each of 8 workers takes 4 s, all others 1 s; the function takes 0.9 s."""
    tasks = [Task(4.0, "load")] * 8 + [Task(1.0, "load")] * 8 * (rounds - 1)
    events = noted("load", len(tasks), function=0.9 * len(tasks))
    observed = Cluster(8, events=events).run(tasks, [Graph(client=FLOW)])
    assert prefect_seconds(observed)["load"].first == pytest.approx(8 * 3.0, rel=0.05)
    assert golden_once(only(find(observed), "prefect-overhead")).severity is Severity.INFO


@pytest.mark.parametrize("what", ["persist", "hash"])
def test_writing_large_results_or_hashing_large_inputs_is_found_as_prefect_overhead(what, golden):
    short, long = (find(flow(function=s, **{what: each})) for s, each in ((20.0, 50.0), (45.0, 25.0)))
    golden(only(short, "prefect-overhead"), only(long, "prefect-overhead"))
    assert short["prefect-overhead"].lost_s == pytest.approx(60.0)
    assert long["prefect-overhead"].lost_s == pytest.approx(25.0)  # the functions take longer than the engine
    assert not find(flow(function=70.0, **{what: 5.0}))


def test_scanning_the_arguments_of_calls_is_found_as_prefect_overhead(golden):
    golden(only(find(flow(function=8.0, nbytes=80 * 24_000_000)), "prefect-overhead"))


@pytest.mark.parametrize("seconds", [9.0, 20.0, 60.0])
def test_prefect_servers_started_by_workers_are_found(seconds, golden_once):
    (started,) = noted("load", tasks=8, server=seconds)
    finding = golden_once(only(find(flow(function=80.0 - seconds, events=[started])), "prefect-server-in-workers"))
    assert finding.lost_s == pytest.approx(seconds)


def test_waits_for_retries_of_prefect_are_found_as_retried_tasks(golden):
    finding = golden(only(find(flow(function=40.0, retry=30.0, **{"raised OSError": 10.0})), "retried-tasks"))
    assert finding.lost_s == pytest.approx(40.0)


def limited(seconds):
    wait = {"prefix": "load", "what": 'concurrency("db")', "where": "", "tasks": 80, "seconds": seconds}
    return [(1_100.0, "waits", wait)]


def test_waiting_for_a_concurrency_limit_is_found_as_waiting_tasks(golden):
    assert golden(only(find(flow(function=38.0, events=limited(40.0))), "waiting-tasks")).lost_s == pytest.approx(40.0)
    # Asking for a slot alone takes as long.
    assert "waiting-tasks" not in find(flow(function=38.0, release=10.0, events=limited(30.0)))


@pytest.mark.parametrize("client", ["Client-1", FLOW])
def test_a_remedy_names_the_calls_of_prefect_if_prefect_sent_the_tasks(client, golden):
    graphs = in_turn(12, 0.0, client=client)
    golden(find(Cluster(4).run([Task(1.0, "load", graph=i) for i in range(12)], graphs))["results-awaited-in-loop"])


def test_work_of_prefect_once_around_a_flow_is_only_information(golden):
    observation = watched(
        flow(function=79.0), (10.0, ("f.py:3 f", "wait", 1)), (3.0, ("f.py:9 <module>", FLOW_ENGINE, 0))
    )
    golden(only(find(observation), "client-busy"))


def test_a_flow_that_awaits_results_before_sending_more_is_found_as_few_tasks_in_flight(golden):
    graphs = [Graph(0.7 * i, client=FLOW) for i in range(20)]
    observation = Cluster(8).run([Task(1.0, "load", graph=i) for i in range(20)], graphs)
    assert "slow-submission" in find(observation)
    found = find(watched(observation, (15.0, ("f.py:3 f", "a.result", 1))))
    assert "slow-submission" not in found
    golden(found["few-tasks-in-flight"])


# ------------------------------------------------------------------ what ends before its tasks


def also_sent(observation, tasks):
    """The same trial, whose first graph had so many more tasks, which have no row."""
    observation.tables["graphs"]["tasks"][0] += tasks
    return observation


def unfinished(left=(), cancelled=()):
    return (1_000.0, "unfinished", {"left": dict(left), "cancelled": dict(cancelled)})


@pytest.mark.parametrize(
    ("left", "sent", "facts"),
    [
        pytest.param({"load": 7}, 7, {}, id="a few"),
        pytest.param({"theirs": 90}, 0, {}, id="sent before the flow"),
        pytest.param({"load": 90}, 90, {RAN: "cluster"}, id="of a watched cluster"),
    ],
)
def test_few_unfinished_tasks_or_tasks_not_sent_by_the_flow_are_no_fault(left, sent, facts):
    observation = also_sent(flow(function=79.0, events=[unfinished(left=left)]), sent)
    assert not find(replace(observation, trial=replace(observation.trial, facts=facts)))


def test_tasks_that_a_plain_client_cancels_are_healthy():
    observation = Cluster(8, events=[unfinished(cancelled={"load": 400})]).run([Task(1.0)] * 80, [Graph()])
    assert not find(also_sent(observation, 400))


@pytest.mark.parametrize("told", [unfinished(left={"load": 20}), unfinished(cancelled={"load": 20})])
def test_a_flow_that_ended_before_its_tasks_is_found_as_unfinished_tasks(told, golden):
    golden(only(find(also_sent(flow(function=79.0, events=[told]), 20)), "unfinished-tasks"))


GIVEN_UP = [
    (1_100.0, "task-erred", {"key": f"load-{i}", "worker": "", "exception": "KilledWorker(...)", "call": ""})
    for i in range(20)
]


def test_task_runs_left_open_by_dead_workers_are_reported_with_the_call_that_ends_them():
    events = [unfinished(cancelled={"load": 20}), *GIVEN_UP]
    assert "unfinished-tasks" not in find(also_sent(flow(function=79.0, events=events), 20))
    assert "set_task_run_state" in untold(flow(function=79.0, events=GIVEN_UP))
    assert untold(flow(function=79.0)) == ""
    assert untold(Cluster(8, events=GIVEN_UP).run([Task(1.0)] * 80, [Graph()])) == ""


def test_a_flow_that_ended_before_any_task_has_the_verdict_unfinished_tasks(golden):
    observation = Cluster(2, events=[unfinished(cancelled={"say_hello": 4})]).observe(
        [], [Graph(client=FLOW)], [0.0], facts={RAN: "script"}, reason="no task was recorded"
    )
    finding = golden(only(find(also_sent(observation, 4)), "unfinished-tasks"))
    sweep = Sweep(
        "flow.py", cluster=cluster_spec({"kind": "scheduler", "address": "inproc:0"}), points=({"workers": 2},)
    )
    trial = replace(observation.trial, findings=(finding,))
    assert [each.code for each in verdict.diagnose(sweep, [trial]).findings] == ["unfinished-tasks"]


@pytest.mark.parametrize("given", [{"state": TrialState.FAILED}, {"state": TrialState.INVALID, "reason": "timed out"}])
def test_a_failed_or_timed_out_trial_is_not_found_as_unfinished_tasks(given):
    observation = Cluster(4, events=[unfinished(left={"load": 90})]).run([Task(1.0)] * 40, [Graph()], **given)
    assert "unfinished-tasks" not in find(also_sent(observation, 90))
