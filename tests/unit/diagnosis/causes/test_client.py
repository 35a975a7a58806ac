from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.findings import Doing, observed, only, watched
from support.small_cluster import Cluster, Graph, Task, find, in_turn, with_tables
from support.small_records import EPOCH

from scalescope.diagnosis.evidence.rescheduled import sent_at_once_saves_s
from scalescope.diagnosis.observation import Observation
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Place, Severity
from scalescope.model.records import ACTOR_CALLS, FLOW, HASHED, IMPORT, JOBLIB, LOCAL, META, OTHER_CLUSTER, TRAVERSED
from scalescope.model.sweep import Sweep

GATHER = ("my_job.py:70 main", "client.gather", 1)
SLEEP = ("my_job.py:61 prepare", "time.sleep", 0)
ELSEWHERE = ("my_job.py:24 main", OTHER_CLUSTER, 1)


def rounds(count: int = 3, pause: float = 0.0, nbytes: int = 2**20) -> Observation:
    """`count` graphs of 8 tasks of 2 s on 8 workers, each sent `pause` seconds after the last has ended."""
    graphs = in_turn(count, pause)
    return Cluster(8).run([Task(2.0, graph=i, nbytes=nbytes) for i in range(count) for _ in range(8)], graphs)


def in_rounds(pause: float, doing: Doing, count: int = 3) -> Sequence[tuple[float, Doing]]:
    return [(2.0, GATHER), *[(pause, doing), (2.0, GATHER)] * (count - 1)]


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_client_that_waits_for_its_tasks_is_healthy(pause):
    observed = watched(rounds(pause=pause), *in_rounds(pause, SLEEP))
    assert not find(observed)
    assert observed.share("client") == pytest.approx(2 * pause / (6 + 2 * pause))


LINES = [*[(0.75, (f"my_job.py:{i} step_{i}", "", 0)) for i in range(4)], (0.4, SLEEP)]
SAME = [(0.5, (f"my_job.py:{line} parse", "", 0)) for line in (50, 51, 52)]
WORK = ("my_job.py:9 <module>", "", 0)
# rows of the client from its first action on, the begin of that, and the seconds of its work
BUSY = {
    **{f"{s} s before the first graph": ([(s, SLEEP), (2.0, GATHER)], -s, s) for s in (0.5, 2.0, 4.0)},
    "Dask calls a function to infer its result": ([(2.0, ("my_job.py:7 chunk", META, 0)), (2.0, GATHER)], -2.0, 2.0),
    "Dask calls it briefly": ([(0.4, ("my_job.py:7 chunk", META, 0)), (2.0, GATHER)], -0.4, 0.4),
    # and half a second on the way to the client, which is not its work
    "before and after all tasks": ([(0.2, SLEEP), (2.5, GATHER), (4.0, WORK)], -0.2, 4.2),
    "on several lines": ([*LINES, *SAME, (2.0, GATHER)], -4.9, 4.9),
    "imports": ([(1.0, ("my_job.py:2 main", IMPORT, 0)), (2.0, GATHER)], -1.0, 1.0),
}


@pytest.mark.parametrize("case", BUSY)
def test_a_client_that_works_while_no_task_is_known_is_found_busy_at_the_line_that_takes_longest(case, golden):
    rows, begin, seconds = BUSY[case]
    finding = golden(find(watched(rounds(1), *rows, begin=begin))["client-busy"])
    assert finding.lost_s == pytest.approx(8 * seconds)
    usual = Severity.HIGH if seconds > 1 else Severity.MEDIUM
    assert finding.severity is (Severity.INFO if case in ("imports", "Dask calls it briefly") else usual)
    before = {each.what: each.value for each in finding.evidence}["seconds before the first graph"]
    assert before == pytest.approx(-begin)


@pytest.mark.parametrize("seconds", [0.5, 4.0])
def test_a_client_that_works_between_graphs_is_found_busy(seconds, golden_once):
    observed = watched(rounds(pause=seconds), *in_rounds(seconds, SLEEP))
    assert golden_once(find(observed)["client-busy"]).severity is (Severity.HIGH if seconds > 1 else Severity.MEDIUM)


@pytest.mark.parametrize(("pauses", "code", "at"), [(3, "client-busy", 61), (0, "results-awaited-in-loop", 70)])
def test_the_line_of_the_client_is_kept_as_the_place_of_the_finding(pauses, code, at):
    run = Cluster(8).run([Task(2.0, graph=i) for i in range(8)], in_turn(8, 0.0))
    begin, waits = -2.0 * pauses, [(2.0, GATHER)] * 8
    place = find(watched(run, *[(2.0, SLEEP)] * pauses, *waits, begin=begin))[code].place
    assert place == Place("my_job.py", at, "prepare" if pauses else "main")


@pytest.mark.parametrize("seconds", [0.5, 4.0, 0.02])
def test_a_scheduler_of_dask_in_the_client_is_found_beside_an_idle_cluster(seconds, golden_once):
    rows = in_rounds(seconds, ("my_job.py:9 main", LOCAL, 0))
    findings = find(watched(rounds(pause=seconds), *rows))
    assert list(findings) == (["local-scheduler"] if seconds > 0.02 else [])
    if findings:
        finding = golden_once(only(findings, "local-scheduler"))
        assert finding.lost_s == pytest.approx(8 * 2 * seconds, rel=0.01)
        assert finding.place == Place("my_job.py", 9, "main")


@pytest.mark.parametrize("what", [LOCAL, JOBLIB, "client.run"])
def test_computing_beside_the_cluster_is_named_as_the_reason_why_no_task_was_measured(what, golden):
    trial = replace(
        Cluster(2).observe([]).trial, real_s=5.0, facts={"ran": "script"}, reason="no task ran on the cluster"
    )
    none = Observation.of(trial, {})
    (finding,) = find(watched(none, (4.0, ("my_job.py:9 main", what, 0)))).values()
    golden(finding)
    assert (finding.code, finding.severity, finding.lost_s) == ("local-scheduler", Severity.HIGH, pytest.approx(8.0))
    assert not find(watched(none, (4.0, SLEEP)))
    judged = diagnose(Sweep("s.py", points=({"workers": 2},)), [replace(trial, findings=(finding,))])
    assert [each.code for each in judged.findings] == ["local-scheduler"]


def test_time_of_prefects_engine_around_a_flow_is_found_as_client_busy_for_information_only():
    observed = watched(rounds(1), (2.0, GATHER), (2.0, ("my_job.py:39 <module>", FLOW, 0)))
    trial = replace(observed.trial, findings=tuple(find(observed).values()))
    judged = diagnose(Sweep("s.py", points=({"workers": 8},)), [trial])
    assert [(each.code, each.severity) for each in judged.findings] == [("client-busy", Severity.INFO)]


def test_a_client_that_searches_arguments_for_dask_objects_is_advised_to_wrap_them_once(golden):
    golden(find(watched(rounds(pause=4.0), *in_rounds(4.0, ("my_job.py:9 main", TRAVERSED, 0))))["client-busy"])


@pytest.mark.parametrize(("packed_s", "nbytes"), [(0.05, 2**20), (2.0, 2**20), (2.0, 64)])
def test_for_many_results_packed_item_by_item_the_advice_is_to_return_arrays(packed_s, nbytes, golden):
    observed = watched(rounds(1, nbytes=nbytes), (2.0, GATHER), (4.0, GATHER))
    packed = with_tables(observed, fine=[("get-data", "", "serialize", "seconds", packed_s)])
    golden(only(find(packed), "client-waits"))


@pytest.mark.parametrize("what", ["client.scatter", "da.from_array"])
def test_a_client_that_hashes_data_is_advised_to_name_it_randomly(what, golden):
    at = ("my_job.py:9 main", HASHED + what, int(what == "client.scatter"))
    golden(*find(watched(rounds(1), (4.0, at), (1.0, GATHER))).values())


def test_a_client_that_works_while_tasks_run_or_in_a_very_short_trial_is_healthy():
    assert not find(watched(rounds(1), (1.9, SLEEP), (0.1, GATHER)))
    observed = watched(Cluster(8).run([Task(0.05)] * 8), (0.05, SLEEP), (0.05, GATHER), begin=-0.05)
    assert observed.share("client") == pytest.approx(0.5)
    assert not find(observed)


def test_a_client_that_waits_for_results_to_arrive_is_found_as_client_waits(golden):
    observed = watched(rounds(1), (5.0, GATHER))
    (finding,) = find(observed).values()
    assert (finding.code, finding.lost_s) == ("client-waits", pytest.approx(8 * 3.0))
    golden(finding)


@pytest.mark.parametrize(
    ("call", "promised"), [("future.result", True), ("client.run", False), ("client.wait_for_workers", False)]
)
def test_no_gain_is_promised_for_a_call_that_runs_no_task(call, promised):
    observed = watched(rounds(1), (5.0, ("my_job.py:9 main", call, 1)))
    metrics = replace(observed.trial.metrics, elapsed_s=observed.attempts.elapsed)
    finding = find(Observation.of(replace(observed.trial, metrics=metrics), observed.tables))["client-waits"]
    assert finding.remedy
    assert (finding.gain is not None) == promised


def test_time_without_workers_during_a_restart_is_charged_to_the_restart(golden):
    """Workers leave with the restart, and others come 4 s after it."""
    later = dict.fromkeys((2, 3), 6.5)
    run = Cluster(4, asked=2, joined=later, left={0: 2.5, 1: 2.5}).run([Task(2.0)] * 2)
    found = find(watched(run, (2.0, GATHER), (4.5, ("my_job.py:16 main", "client.restart", 1))))
    assert found["client-waits"].lost_s == pytest.approx(2 * 4.5)
    golden(found["client-waits"])


def test_waiting_for_small_results_gets_no_advice_to_gather_less():
    small = Cluster(8).run([Task(2.0) for _ in range(8)], [Graph()])
    finding = only(find(watched(small, (5.0, GATHER))), "client-waits")
    assert finding.gain is None
    assert "`client.map(reduce, futures)`" not in finding.remedy


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("pause", [0.2, 4.0])
def test_waits_for_another_cluster_are_healthy(count, pause):
    rows = in_rounds(pause, ELSEWHERE, count)
    run = watched(rounds(count, pause), (pause, ELSEWHERE), *rows, (pause, ELSEWHERE), begin=-pause)
    assert not find(run)
    assert run.seconds("client") == pytest.approx(0, abs=1e-9)
    assert run.seconds("other_cluster") == pytest.approx(8 * pause * (count + 1))


def test_waits_for_another_cluster_do_not_count_as_lost_time():
    run = watched(
        rounds(1),
        *[(3.0, ELSEWHERE), (1.0, SLEEP), (2.0, ELSEWHERE), (2.0, GATHER), (1.5, GATHER), (4.0, ELSEWHERE)],
        begin=-6.0,
    )
    finding = only(find(run), "client-waits")  # 1 s of 13.5 s before the first graph is too little to be found
    assert finding.lost_s == pytest.approx(8 * 1.5)
    assert run.seconds("client") == pytest.approx(8 * 2.5)
    phases = {each.what: each.value for each in finding.evidence}
    assert (phases["seconds before the first graph"], phases["seconds after the last task"]) == (0, 1.5)


def test_a_loop_is_judged_without_its_waits_for_another_cluster():
    graphs = in_turn(10, 5.0)
    loop = Cluster(8).run([Task(1.0, graph=i) for i in range(10)], graphs)
    run = watched(loop, (1.0, GATHER), *[(4.0, ELSEWHERE), (1.0, SLEEP), (1.0, GATHER)] * 9)
    finding = find(run)["slow-submission"]
    assert finding.lost_s == pytest.approx(8 * 9 * 1.0 + 7 * 9)
    rounds_s = {each.what: each.value for each in finding.evidence}
    assert rounds_s["from one graph to the next, median, s"] == pytest.approx(2.0)
    assert sent_at_once_saves_s(run, in_tasks=True) == pytest.approx(10 + 9 - 2 - 9 / 8)  # the waits remain


def test_the_gaps_of_a_submission_loop_are_not_charged_to_client_busy():
    graphs = in_turn(10, 1.0)
    loop = Cluster(8).run([Task(1.0, graph=i) for i in range(10)], graphs)
    rows = [(1.0, GATHER), *[(1.0, SLEEP), (1.0, GATHER)] * 9]
    assert list(find(watched(loop, *rows))) == ["slow-submission"]
    findings = find(watched(loop, (4.0, SLEEP), *rows, begin=-4.0))
    assert set(findings) == {"client-busy", "slow-submission"}
    assert findings["client-busy"].lost_s == pytest.approx(8 * 4.0)


def test_time_in_which_the_scheduler_takes_in_a_graph_is_found_as_large_graph():
    run = Cluster(8).run([Task(2.0)] * 8, [Graph(at=-4.0, seconds=4.0, nbytes=10**9)])
    begin, end = array("d", [EPOCH] * 8), array("d", [EPOCH + 2.0] * 8)
    moments = {"runnable": begin, "assigned": begin, "start": begin, "stop": end, "done": end}
    tasks = {**run.tables["tasks"], **moments}
    run = observed(run.trial, {**run.tables, "tasks": tasks})
    run = watched(run, (6.0, GATHER), begin=-4.0)
    assert (run.seconds("client"), run.seconds("no_runnable_task")) == (0.0, pytest.approx(32))
    assert list(find(run)) == ["large-graph"]


def test_time_in_which_a_large_graph_is_sent_is_found_as_large_graph(golden):
    observed = Cluster(8).run([Task(2.0)] * 8, [Graph(nbytes=10**9)])
    (finding,) = find(watched(observed, (6.0, GATHER), begin=-4.0)).values()
    assert (finding.code, finding.lost_s) == ("large-graph", pytest.approx(32))
    golden(finding)


def test_without_samples_of_the_client_the_finding_has_no_line_and_less_confidence(golden):
    assert golden(find(rounds(pause=4.0))["client-busy"]).confidence < 0.7


def test_a_busy_client_alone_makes_the_verdict_unhealthy():
    observed = watched(rounds(1), (0.3, SLEEP), (2.0, GATHER), begin=-0.3)
    trial = replace(observed.trial, findings=tuple(find(observed).values()))
    assert [finding.code for finding in diagnose(Sweep("mine"), [trial]).findings] == ["client-busy"]


# ------------------------------------------------------------------ calls that carry data

SUBMIT = ("my_job.py:12 main", "client.submit", 0)


@pytest.mark.parametrize(
    ("nbytes", "doing", "said"),
    [
        (12_000_000, SUBMIT, "large-graph"),
        (2_000_000, SUBMIT, "serialisation-bound"),
        (2_000, SUBMIT, "slow-submission"),
        (2_000_000, SLEEP, "slow-submission"),
    ],
)
def test_a_loop_that_packs_data_for_each_call_gets_its_cause_by_the_bytes_of_a_graph(nbytes, doing, said, golden):
    tasks = [Task(0.1, "func", graph=i) for i in range(20)]
    sent = Cluster(4).run(tasks, [Graph(at=0.5 * i, nbytes=nbytes) for i in range(20)])
    findings = find(watched(sent, (10.0, doing)))
    finding = golden(next(iter(findings.values())))
    assert finding.code == said
    assert "slow-submission" not in findings or said == "slow-submission"
    assert 0.5 < sent.share_of(finding.lost_s) < 1


def test_a_loop_limited_by_bandwidth_is_found_as_large_graph():
    """80 MB a second is about what Dask expects of a connection; 24 MB a second is not."""
    tasks = [Task(0.1, "func", graph=i) for i in range(20)]
    for every, said in ((0.15, "large-graph"), (0.5, "slow-submission")):
        sent = Cluster(8).run(tasks, [Graph(at=every * i, nbytes=12_000_000) for i in range(20)])
        assert next(iter(find(watched(sent, (every * 20, SLEEP))))) == said


@pytest.mark.parametrize(
    ("nbytes", "graphs", "said"),
    [
        (2_000_000, 1, "client-busy"),  # one graph of 60 tasks: each carries little
        (20_000_000, 1, "large-graph"),
        (2_000_000, 60, "serialisation-bound"),
        (2_000, 60, "client-busy"),
    ],
)
def test_packing_before_the_first_graph_gets_its_cause_by_bytes_and_number_of_graphs(nbytes, graphs, said):
    tasks = [Task(0.5, "func", graph=i % graphs) for i in range(60)]
    sent = Cluster(4).run(tasks, [Graph(at=0.001 * i, nbytes=nbytes) for i in range(graphs)])
    findings = find(watched(sent, (5.0, SUBMIT), (8.0, GATHER), begin=-5.0))
    assert list(findings) == [said]
    assert findings[said].lost_s == pytest.approx(20, rel=0.05)


def test_scattering_before_the_first_graph_is_found_as_client_waits(golden):
    """Round trips of the later graphs do not count as time before the first graph."""
    observed = Cluster(4).run([Task(0.05, graph=i) for i in range(12)], [Graph(at=0.001 * i) for i in range(12)])
    observed = watched(observed, (0.4, ("my_job.py:10 main", "client.scatter", 1)), begin=-0.4)
    golden(find(observed)["client-waits"])


# ------------------------------------------------------------------ calls of actors

ANSWER = ("my_job.py:30 main", "actor.fit.result", 1)


def acting(calls: Sequence[tuple[int, float]], seconds: float = 0.5) -> Observation:
    """One actor on each of 8 workers, made in 0.1 s; `calls` are worker and begin in seconds."""
    events = []
    for worker, begin in calls:
        message = {"worker": f"tcp://10.0.0.{worker}:4000", "end": EPOCH + begin + seconds, "seconds": seconds}
        events.append((begin + seconds, ACTOR_CALLS, {**message, "methods": {"M.fit": [1, seconds]}}))
    observed = Cluster(8, events=events).run([Task(0.1, "M")] * 8)
    return watched(observed, (max(begin for _, begin in calls) + seconds, ANSWER))


def test_actors_that_are_called_all_at_once_or_for_a_short_time_are_healthy():
    observed = acting([(worker, 0.1 + 0.5 * turn) for turn in range(4) for worker in range(8)])
    assert observed.share("actors") == pytest.approx(2.0 / 2.1)
    assert not find(observed)
    trial = replace(observed.trial, findings=())
    assert diagnose(Sweep("mine"), [trial]).findings[0].code == "healthy"
    assert not find(acting([(i, 0.1 + 0.01 * i) for i in range(4)], seconds=0.01))


def test_actors_of_unlike_speed_that_are_all_called_at_once_are_healthy():
    """Seven of eight wait for the slowest in each turn."""
    observed = acting([(worker, 0.1 + 0.6 * turn) for turn in range(8) for worker in range(8)])
    assert observed.share("client") > 0.1
    assert not find(observed)


def test_actors_called_one_after_another_are_found_as_results_awaited_in_loop(golden):
    observed = acting([(i % 8, 0.1 + 0.5 * i) for i in range(16)])
    assert golden(only(find(observed), "results-awaited-in-loop")).lost_s == pytest.approx(7 * 8.0, rel=0.02)


def test_one_actor_that_does_all_the_work_is_found_as_client_waits(golden):
    observed = acting([(0, 0.1 + 0.5 * i) for i in range(16)])
    golden(only(find(observed), "client-waits"))


def test_making_actors_between_their_calls_is_not_found_as_slow_submission(golden):
    message = {"worker": "tcp://10.0.0.0:4000", "end": EPOCH + 0.7, "seconds": 0.5, "methods": {"M.fit": [1, 0.5]}}
    tasks = [Task(0.01, "M"), Task(0.01, "M", graph=1), Task(0.01, "sqrt", graph=2)]
    observed = Cluster(2, events=[(0.7, ACTOR_CALLS, message)]).run(tasks, [Graph(), Graph(at=0.1), Graph(at=0.75)])
    golden(only(find(watched(observed, (0.76, ANSWER))), "client-waits"))
