from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from support.findings import observed, only, watched
from support.small_cluster import Cluster, Graph, Task, find, in_turn, standing

from scalescope.model.finding import Place, Severity
from scalescope.model.large_part import ALL_TASKS, LargePart
from scalescope.model.records import HASHED, TASK_WAITS, from_rows
from scalescope.model.standstill import NO_THREAD, StandingTasks, Standstill

EPOCH = 1_000.0
SIZES = [2, 4, 10, 40, 200]
SEEDS = range(4)


def one_each(seconds):
    """A graph for each task."""
    return [Task(each, graph=i) for i, each in enumerate(seconds)]


def sent(moments):
    return [Graph(at=moment) for moment in moments]


# ------------------------------------------------------------------ results awaited in a loop


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_that_awaits_each_result_is_found_as_results_awaited_in_loop(workers, seed, golden_once):
    rng = random.Random(seed)
    rounds, seconds = rng.choice([8, 20, 60]), rng.choice([0.1, 1.0, 10.0])
    tasks = [Task(seconds * rng.lognormvariate(0, rng.choice([0, 0.4])), "inc", graph=i) for i in range(rounds)]
    graphs = in_turn(rounds, 0.005)
    finding = golden_once(only(find(Cluster(workers).run(tasks, graphs)), "results-awaited-in-loop"))
    assert finding.severity is Severity.HIGH
    observed = Cluster(workers).run(tasks, graphs)
    assert finding.lost_s == pytest.approx(observed.seconds("no_runnable_task", "client", "tail"), rel=0.02)


def test_compute_in_a_loop_is_found_as_results_awaited_in_loop(golden):
    tasks = [Task(1.0, graph=i // 4) for i in range(80)]
    graphs = in_turn(20)
    golden(only(find(Cluster(16).run(tasks, graphs)), "results-awaited-in-loop"))


def test_joblib_calls_that_wait_for_one_another_get_a_remedy_in_terms_of_joblib(golden):
    tasks = [Task(1.0, "batch_of_fit_1_calls", graph=i) for i in range(20)]
    golden(only(find(Cluster(4).run(tasks, in_turn(20))), "results-awaited-in-loop"))


def paces():
    """Name, workers, tasks, graphs, and the codes of all that is found."""
    slow, chain = ["slow-submission"], [Task(1.0, needs=(i - 1,) if i else (), graph=i) for i in range(50)]
    for seed in SEEDS:
        rng = random.Random(seed)

        def some(low, high, count=30, rng=rng):
            return [rng.uniform(low, high) for _ in range(count)]

        processed = [Graph(after=i - 1 if i else None, at=at) for i, at in enumerate(some(0.2, 0.6))]
        yield f"each result is processed, {seed}", 8, one_each(some(0.5, 1.5)), processed, ["results-awaited-in-loop"]
        uneven = [0.25 * i + late for i, late in enumerate(some(0.0, 0.05, 100))]
        yield f"a random pace, {seed}", 16, one_each(some(0.5, 1.5, 100)), sent(uneven), slow
        yield f"slower than the tasks, {seed}", 8, one_each([1.0] * 30), sent(accumulate(some(1.05, 2.0))), slow
        yield f"a regular pace, {seed}", 4, one_each(some(0.3, 0.9)), sent(range(30)), slow
        near = [0.5 * i + late for i, late in enumerate(some(0.0, 0.01, 60))]
        yield f"a regular pace near ends, {seed}", 16, one_each([0.99 - 0.04 * (seed % 2)] * 60), sent(near), slow
    # it awaits each result, but its own work takes longer than the tasks
    yield "long work between results", 4, one_each([0.1] * 20), in_turn(20, 1.0), slow
    yield "rounds that fill the threads", 16, [Task(1.0, graph=i // 16) for i in range(160)], in_turn(10), []
    yield "two rounds", 16, one_each([1.0] * 2), in_turn(2), []
    window = [Graph(after=i - 20 if i >= 20 else None, at=0.001) for i in range(200)]
    yield "a window that fills the threads", 10, one_each([1.0 + i % 7 / 10 for i in range(200)]), window, []
    for workers in SIZES:
        moments = [0.9 * i / workers for i in range(20 * workers)]
        yield f"fast enough for {workers}", workers, one_each([1.0] * 20 * workers), sent(moments), []
    yield "a chain of futures sent at once", 4, chain, sent(0.002 * i for i in range(50)), []


@pytest.mark.parametrize(("workers", "tasks", "graphs", "codes"), [pytest.param(*rest, id=id) for id, *rest in paces()])
def test_each_pace_at_which_the_client_sends_tasks_has_its_own_finding(workers, tasks, graphs, codes):
    assert list(find(Cluster(workers).run(tasks, graphs))) == codes


def test_rounds_of_chains_that_leave_threads_idle_are_found_as_awaited_in_loop():
    """Each graph has as many tasks as there are threads, and never more than two at once."""
    tasks = [Task(1.0, "step", (16 * i + j - 2,) if j > 1 else (), graph=i) for i in range(4) for j in range(16)]
    assert "results-awaited-in-loop" in find(Cluster(16).run(tasks, in_turn(4)))


@pytest.mark.parametrize(("width", "wasted"), [(20, 12 / 32), (33, 15 / 48)])
def test_rounds_whose_last_wave_does_not_fill_the_threads_are_found_as_awaited_in_loop(width, wasted, golden):
    tasks = [Task(1.0, graph=i // width) for i in range(6 * width)]
    graphs = in_turn(6)
    observed = Cluster(16).run(tasks, graphs)
    finding = golden(find(observed)["results-awaited-in-loop"])
    assert observed.share_of(finding.lost_s) == pytest.approx(wasted, rel=0.05)
    assert "results-awaited-in-loop" not in find(Cluster(16).run([Task(1.0)] * 6 * width))  # one graph


def test_a_client_that_is_slow_between_rounds_is_not_found_as_few_tasks_in_flight():
    """Rounds of 4 tasks on 60 threads with long gaps: no task is left when the next round is sent."""
    tasks = [Task(0.1, graph=i // 4) for i in range(32)]
    run = Cluster(60).run(tasks, [Graph(after=i - 1 if i else None, at=0.2 + i % 3 / 10) for i in range(8)])
    calls = [{"time": EPOCH, "seconds": 9.0, "where": "job.py:7 main", "what": "Future.result", "waits": 1}]
    found = find(observed(run.trial, {**run.tables, "client": from_rows("client", calls)}))
    assert "results-awaited-in-loop" in found
    assert "few-tasks-in-flight" not in found


def test_tasks_sent_by_several_calls_before_the_client_waits_count_as_one_round(golden):
    """Four calls of `submit`, then their results: 8 rounds of 4 tasks, not 4 tasks kept in flight."""
    tasks = [Task(0.4 + i % 4 / 5, graph=i) for i in range(32)]
    graphs = [Graph(after=i - 1 - i % 4 if i >= 4 else None, at=0.61 + i % 4 / 1000) for i in range(32)]
    run = Cluster(60).run(tasks, graphs)
    calls = [{"time": EPOCH, "seconds": 99.0, "where": "job.py:7 main", "what": "Client.gather", "waits": 1}]
    found = find(observed(run.trial, {**run.tables, "client": from_rows("client", calls)}))
    assert "few-tasks-in-flight" not in found
    golden(found["results-awaited-in-loop"])


@pytest.mark.parametrize(("window", "workers"), [(2, 8), (5, 20), (10, 100)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_keeps_too_few_tasks_in_flight_is_found(window, workers, seed, golden_once):
    rng = random.Random(seed)
    count = 20 * window
    tasks = [Task(rng.uniform(0.5, 1.5), "score", graph=i) for i in range(count)]
    graphs = [Graph(after=i - window if i >= window else None, at=0.001) for i in range(count)]
    golden_once(find(Cluster(workers).run(tasks, graphs))["few-tasks-in-flight"])


def chains(steps, items, goes_on):
    """Tasks of several chains, each task sent when the one before has ended."""
    tasks, graphs, last = [], [], {}
    for step in range(steps):
        for item in range(items):
            if goes_on(step, item):
                graphs.append(Graph(after=last.get(item), at=0.001))
                last[item] = len(tasks)
                tasks.append(Task(0.9 + item / 50, "price", graph=len(tasks)))
    return find(Cluster(8).run(tasks, graphs))["few-tasks-in-flight"]


def test_a_window_that_begins_wide_enough_gets_no_advice_to_begin_wider():
    """Twenty tasks for 8 threads; each end is followed by one more, until only three of these chains go on."""
    finding = chains(20, 20, lambda step, item: step < 2 or item < 3)
    assert "begins with enough tasks" in finding.remedy
    assert finding.gain is None


def test_a_window_of_tasks_that_shrinks_below_the_threads_is_found_as_few_tasks_in_flight(golden):
    """Each of 12 items is worked on until it is good enough: after a while only some are left."""
    golden(chains(40, 12, lambda step, item: step < 4 + 3 * item))


def test_a_crawl_that_keeps_many_tasks_in_flight_gets_no_advice_to_send_more():
    """One task, each end of which sends two more: only the first few leave threads idle."""
    tasks = [Task(1.0, "visit", graph=i) for i in range(110)]
    graphs = [Graph(after=(i - 1) // 2 if i else None, at=0.001) for i in range(len(tasks))]
    assert "few-tasks-in-flight" not in find(Cluster(8).run(tasks, graphs))


def test_without_the_table_of_graphs_nothing_is_found():
    tasks = [Task(1.0, graph=i) for i in range(20)]
    observation = Cluster(16).run(tasks, in_turn(20))
    del observation.tables["graphs"]
    assert not find(observation)


# ------------------------------------------------------------------ slow submission


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_sends_too_slowly_is_found_as_slow_submission(workers, seed, golden_once):
    """Between two calls, the client takes four times as long as would keep the threads busy."""
    rng = random.Random(seed)
    seconds = rng.choice([0.5, 2.0])
    every = 4 * seconds / workers
    tasks = [Task(seconds * rng.lognormvariate(0, 0.2), "inc", graph=i) for i in range(max(20, 2 * workers))]
    finding = only(
        find(Cluster(workers).run(tasks, [Graph(at=i * every) for i in range(len(tasks))])), "slow-submission"
    )
    assert finding.severity is Severity.HIGH
    golden_once(finding)


def test_for_data_scattered_in_each_round_of_a_loop_the_advice_is_to_scatter_it_once(golden):
    run = Cluster(4).run(one_each([0.1] * 40), [Graph(at=0.2 * i) for i in range(40)])
    rows = [(0.15, ("my_job.py:38 run", "client.scatter", 1)), (0.05, ("my_job.py:39 run", "client.submit", 0))] * 40
    golden(find(watched(run, *rows))["slow-submission"])


def test_a_client_that_sleeps_in_each_round_of_a_loop_is_reported_at_the_line_of_the_sleep(golden):
    run = Cluster(4).run(one_each([0.1] * 40), [Graph(at=0.2 * i) for i in range(40)])
    rows = [(0.15, ("my_job.py:38 run", "time.sleep", 0)), (0.05, ("my_job.py:39 run", "client.submit", 0))] * 40
    assert golden(find(watched(run, *rows))["slow-submission"]).place == Place("my_job.py", 38, "run")


@pytest.mark.parametrize(("blocked_s", "severity"), [(0.001, Severity.INFO), (0.15, Severity.HIGH)])
def test_slow_submission_is_only_information_if_the_client_leaves_the_event_loop_free(blocked_s, severity, golden):
    """It waits for a slow source; a client that computes between two calls blocks the loop."""
    run = Cluster(4).run(one_each([0.1] * 40), [Graph(at=0.2 * i) for i in range(40)])
    time = run.measured.epoch + 0.2 * np.arange(40)
    lag = {"time": time, "process": ["scheduler"] * 40, "seconds": np.full(40, blocked_s)}
    facts = {**run.trial.facts, "cluster": {"shares_loop": True}}
    found = find(observed(replace(run.trial, facts=facts), {**run.tables, "lag": lag}))
    assert golden(found["slow-submission"]).severity is severity


@pytest.mark.parametrize(("nbytes", "again"), [(1000, False), (400_000, False), (400_000, True)])
def test_for_arguments_hashed_in_each_round_of_a_loop_the_advice_is_a_random_name(nbytes, again, golden):
    """If all rounds send the same large object, it is sent once instead."""
    run = Cluster(4).run(one_each([0.1] * 40), [Graph(at=0.2 * i, nbytes=nbytes) for i in range(40)])
    part = LargePart(nbytes, "work", "argument `table`", "dict", nbytes, 1, "my_job.py:38 in run", again=again)
    run = observed(replace(run.trial, facts={"large": [part.to_mapping()]}), run.tables)
    rows = [(0.15, ("my_job.py:38 run", HASHED + "client.submit", 0)), (0.05, ("my_job.py:37 run", "load", 0))] * 40
    finding = golden(find(watched(run, *rows))["slow-submission"])
    assert finding.place == Place("my_job.py", 38, "run", "table" if again else "")


# ------------------------------------------------------------------ large graph


@pytest.mark.parametrize(("nbytes", "tasks"), [(500_000_000, 40), (2_000_000, 12_000)], ids=["bytes", "tasks"])
def test_a_large_graph_that_delays_the_first_task_is_found(nbytes, tasks, golden):
    work = [Task(20.0 * 4 / tasks) for _ in range(tasks)]
    observation = Cluster(4).run(work, [Graph(at=0.0, seconds=30.0, nbytes=nbytes)])
    assert not find(observation)  # all of it was known at once: what the scheduler does with it delays nobody
    observation = Cluster(4).run(work, [Graph(at=0.0, seconds=30.0, nbytes=nbytes)])
    observation.tables["graphs"]["time"][0] -= 30.0
    assert golden(find(observation)["large-graph"]).lost_s == pytest.approx(4 * 30.0)


@pytest.mark.parametrize("sent", [10_000, 40])
def test_a_graph_with_many_tasks_whose_results_nothing_needs_is_found(sent, golden_once):
    observation = Cluster(4).run([Task(0.5)] * 40, [Graph(seconds=2.0, nbytes=2_000_000)])
    observation.tables["graphs"]["time"][0] -= 2.0
    part = LargePart(2_000_000, "", ALL_TASKS, "", 2_000_000, sent, "", tasks=sent)
    findings = find(observed(replace(observation.trial, facts={"large": [part.to_mapping()]}), observation.tables))
    if sent == 40:
        assert "large-graph" not in findings
    else:
        assert golden_once(findings["large-graph"]).lost_s == pytest.approx(4 * 2.0)


@pytest.mark.parametrize("gathered", [28, 250_000_000])
def test_a_large_graph_sent_later_is_found(gathered, golden):
    """Such a graph may contain data that the client gathered before."""
    tasks = [*[Task(10.0, "load", nbytes=gathered)] * 4, *[Task(10.0, graph=1)] * 4]
    observation = Cluster(4).run(tasks, [Graph(), Graph(after=0, at=12.0, seconds=10.0, nbytes=10**9)])
    observation.tables["graphs"]["time"][1] -= 10.0
    assert golden(find(observation)["large-graph"]).lost_s == pytest.approx(4 * 10.0)


@pytest.mark.parametrize(("seconds", "nbytes"), [(100.0, 10**9), (1.0, 1000)], ids=["costs little", "small"])
def test_a_slow_intake_of_a_small_or_cheap_graph_is_healthy(seconds, nbytes):
    observation = Cluster(4).run([Task(seconds)] * 4, [Graph(seconds=5.0, nbytes=nbytes)])
    observation.tables["graphs"]["time"][0] -= 5.0
    assert not find(observation)


# ------------------------------------------------------------------ nested clients


def nested(workers, rows, sent, held=True):
    """A trial of these rows; `sent`: time and row of each graph sent by a task; `held`: waiting tasks hold threads."""
    graphs = [Graph(), *(Graph(client="Client-worker-1", task=rows[sender]["key"]) for _, sender in sent)]
    since = {sender: EPOCH + time for time, sender in reversed(sent)}
    waits = [
        (0.0, TASK_WAITS, {"row": sender, "waits": [[begin, EPOCH + rows[sender]["stop"], held]]})
        for sender, begin in since.items()
        if held is not None
    ]
    return Cluster(workers, events=waits).observe(rows, graphs, [0.0, *(time for time, _ in sent)])


def row(name, number, worker, start, stop, graph=0, runnable=0.0):
    known = {"key": f"{name}-{number}", "prefix": name, "group": name, "worker": f"tcp://10.0.0.{worker}:4000"}
    moments = {"runnable": runnable, "assigned": runnable, "start": start, "stop": stop, "done": stop}
    return {**known, **moments, "span": stop - start, "graph": graph}


@pytest.mark.parametrize("workers", [4, 10, 40])
def test_tasks_that_wait_for_tasks_of_their_own_are_found_as_nested_client(workers, golden_once):
    """Half of the workers wait, by `get_client()` and `.result()`, while the other half does their work."""
    half = workers // 2
    rows = [row("parent", i, i, 0.0, 10.0) for i in range(half)]
    rows += [row("child", i, half + i, 0.1, 9.9, 1 + i, 0.1) for i in range(half)]
    finding = golden_once(only(find(nested(workers, rows, [(0.1, i) for i in range(half)])), "nested-client"))
    assert finding.lost_s == pytest.approx(half * 9.9, rel=0.1)


def test_a_task_that_waits_for_one_child_loses_only_its_own_thread():
    """Idle threads without tasks have other causes; the nested client costs only the thread that waits."""
    rows = [row("parent", 0, 0, 0.0, 10.0), row("child", 0, 1, 0.1, 9.9, 1, 0.1)]
    assert find(nested(4, rows, [(0.1, 0)]))["nested-client"].lost_s == pytest.approx(9.9)
    assert "nested-client" not in find(nested(40, rows, [(0.1, 0)]))


def test_a_side_input_of_beam_that_each_bundle_computes_is_found_as_nested_client(golden):
    """The bundles secede, so all threads are busy, but they all compute the same side input."""

    def findings(name):
        rows = [row("from_sequence", i, i, 0.0, 4.0) for i in range(4)]
        rows += [row(name, i, i, 0.2, 3.2, 1 + i, 0.1) for i in range(4)]
        return find(nested(4, rows, [(0.1, i) for i in range(4)], held=False))

    assert golden(findings("apply_dofn_to_bundle")["nested-client"]).lost_s == pytest.approx(3 * 3.0)
    assert "nested-client" not in findings("child")


def test_tasks_that_secede_and_fill_the_threads_or_do_not_wait_are_healthy():
    rows = [row("parent", i, i, 0.0, 10.0) for i in range(4)]
    rows += [row("child", i, i % 4, 0.1 + i // 4, 1.1 + i // 4, 1 + i % 4, 0.1) for i in range(36)]
    assert not find(nested(4, rows, [(0.1, i) for i in range(4)], held=False))
    rows = [row("parent", i, i, 0.0, 1.0) for i in range(8)]  # as with `fire_and_forget`
    rows += [row("child", i, i, 1.0, 3.0, 1 + i, 0.5) for i in range(8)]
    assert not find(nested(8, rows, [(0.5, i) for i in range(8)], held=None))


def test_seceded_tasks_that_send_one_task_after_another_are_found_as_nested_client(golden):
    rows = [row("parent", 0, 0, 0.0, 10.0)]
    rows += [row("child", i, i % 2, i + 0.01, i + 1.0, i + 1, i + 0.01) for i in range(10)]
    golden(only(find(nested(20, rows, [(i + 0.01, 0) for i in range(10)], held=False)), "nested-client"))


def test_tasks_that_poll_for_the_end_of_tasks_they_sent_are_found_as_nested_client():
    """The task that the second parent sent never ran."""
    rows = [*(row("parent", i, i, 0.0, 10.0) for i in range(2)), row("child", 0, 2, 0.2, 9.9, 1, 0.1)]
    assert find(nested(3, rows, [(0.1, 0), (0.1, 1)], held=None))["nested-client"].lost_s == pytest.approx(9.8)


WAITING = StandingTasks("parent", 4, True, "mine.py:7 in parent", "result (client.py)", "Client", "", 4)
STARVED = StandingTasks("child", 2, False, "", "", "", NO_THREAD, 2)
STOPPED = Standstill(52.0, 4, 4, 6, 2, 0, (WAITING, STARVED))


@pytest.mark.parametrize("finished", [0, 3])
def test_a_deadlock_of_nested_clients_is_found(finished, golden):
    observation = standing(Cluster(4), STOPPED, [Task(1.0)] * finished)
    golden(find(observation)["nested-client"])


def test_a_deadlock_on_one_of_several_workers_is_found():
    """The child of the waiting task may run only on the same worker."""
    groups = replace(WAITING, tasks=1, stuck=1), replace(STARVED, tasks=1, stuck=1)
    stopped = replace(STOPPED, taken=1, left=2, ready=1, groups=groups)
    assert list(find(standing(Cluster(4), stopped))) == ["nested-client"]


@pytest.mark.parametrize(
    "stopped",
    [
        replace(STOPPED, still_s=1.0),  # tasks still begin and end
        replace(STOPPED, still_s=None),
        replace(STOPPED, computing=1),
        replace(STOPPED, groups=(replace(WAITING, tasks=3, stuck=0),)),  # another thread computes
        replace(STOPPED, ready=0, groups=(WAITING,)),  # what they wait for runs elsewhere, or nowhere
        replace(STOPPED, groups=(replace(WAITING, waits_for="", call="read (netcdf.py)", stuck=0),)),
        replace(STOPPED, groups=(replace(WAITING, holds=False, stuck=0), STARVED)),  # they have seceded
    ],
)
def test_a_stopped_trial_without_a_deadlock_is_not_found_as_nested_client(stopped):
    assert not find(standing(Cluster(4), stopped))
