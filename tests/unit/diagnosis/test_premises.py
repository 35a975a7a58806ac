"""A remedy whose premise does not hold is not named, and predicts no gain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import observed, watched
from support.small_cluster import Cluster, Graph, Task, find, with_tables

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.cause import Premise
from scalescope.diagnosis.causes.memory import MEMORY_SPILL
from scalescope.diagnosis.causes.too_few_partitions import TOO_FEW_PARTITIONS
from scalescope.diagnosis.observation import Remedy, TrialCause
from scalescope.model.finding import Severity
from scalescope.model.sweep import Point

MIB = 2.0**20
NEVER = Premise("It never holds.", lambda looked: False)
ALWAYS = Premise("It always holds.", lambda looked: True)


def cause(premise=ALWAYS):
    return TrialCause(
        code="made-up",
        title="",
        needs="",
        ruled_out_by="",
        remedy="do it",
        premise=premise,
        parts=("no_runnable_task",),
    )


def found(run, remedy, premise=ALWAYS):
    return cause(premise).finding(run, run.threads * 0.5, "So it is.", remedy, confidence=1.0)


@pytest.fixture
def run():
    run = Cluster(4).run([Task(1.0)] * 6)
    return observed(replace(run.trial, metrics=replace(run.metrics, elapsed_s=3.0)), run.tables)


def test_a_remedy_is_given_if_its_premise_holds_and_it_changes_something(run):
    finding = found(run, Remedy("do it", saved_s=0.3, premise=ALWAYS))
    assert finding.remedy == "do it"
    assert finding.gain is not None
    assert found(run, Remedy("do it", change={"threads_per_worker": 2})).remedy == "do it"


@pytest.mark.parametrize(
    ("remedy", "premise"),
    [
        (Remedy("do it", saved_s=0.3), NEVER),
        (Remedy("do it", saved_s=0.3, premise=NEVER), ALWAYS),
        (Remedy("do it", saved_s=0.3, change={"workers": 4}), ALWAYS),  # there are 4
        (Remedy("do it", premise=NEVER, otherwise=Remedy("or this", premise=NEVER)), ALWAYS),
    ],
)
def test_a_finding_whose_premise_fails_keeps_only_its_summary(run, remedy, premise):
    finding = found(run, remedy, premise)
    assert (finding.summary, finding.severity) == ("So it is.", Severity.MEDIUM)
    assert (finding.remedy, finding.gain, finding.fix) == ("", None, "")


@pytest.mark.parametrize("premise", [ALWAYS, NEVER])
def test_the_second_remedy_is_given_if_the_premise_of_the_first_fails(run, premise):
    first = Remedy("do it", premise=NEVER if premise is ALWAYS else None, otherwise=Remedy("or this", saved_s=0.0))
    finding = found(run, first, premise)
    assert (finding.remedy, finding.gain) == ("or this", None)


@pytest.mark.parametrize(("partitions", "named"), [(3, True), (8, False)])
def test_more_partitions_are_proposed_only_if_there_are_fewer_than_threads(run, partitions, named):
    metrics = replace(run.metrics, widest_stage=partitions)
    point = PointSummary(Point(8, 1), valid=1, metrics=metrics)
    finding = TOO_FEW_PARTITIONS.finding(Severity.HIGH, "So it is.", "make more", points=[point])
    assert bool(finding.remedy) is named


# ------------------------------------------------------------------ what the cores of the host can do


@pytest.mark.parametrize(("cpus", "least_s"), [(1, 6.0), (2, 3.0), (16, 0.375)])
def test_no_predicted_time_is_below_what_the_cores_of_the_host_need(cpus, least_s):
    """Eight tasks compute one after another on eight threads; at the same time they would share the cores."""
    one_by_one = Cluster(8).run([Task(1.0, needs=(i - 1,) if i else ()) for i in range(8)])
    load = {"ours": 0.5, "others": 0.0, "stolen": 0.0, "idle": 0.5, "cpus": cpus, "seconds": 8.0}
    tables = {**one_by_one.tables, "workers": {**one_by_one.tables["workers"], "host": ["localhost"] * 8}}
    metrics = replace(one_by_one.metrics, busy_time_s={"computing": 6.0})
    run = observed(replace(one_by_one.trial, metrics=metrics, facts={"host": {"load": load, "hostname": "h"}}), tables)
    assert run.computing_s == pytest.approx(least_s)
    metrics = replace(run.metrics, elapsed_s=8.0)
    gain = cause().gain(metrics, 8, 8.0, changes=("T∞",), least_s=run.computing_s)
    assert gain.predicted_s == pytest.approx(max(least_s, 1.0))


# ------------------------------------------------------------------ memory


def with_memory(run, samples, limit, **host):
    """The trial with samples (worker, time, bytes of results, bytes on disk) and a limit of its workers' memory."""
    fine = [("bytes", 2e9), ("seconds", 1.0)]
    memory = [
        (worker, time, {"managed": int(held), "rss": int(held), "spilled": int(disk)})
        for worker, time, held, disk in samples
    ]
    seen = with_tables(run, memory, [("memory-monitor", "", "disk-write", *each) for each in fine], limit, host=host)
    seen.tables["workers"]["host"] = ["localhost"] * len(seen.tables["workers"]["worker"])
    return seen


@pytest.mark.parametrize(
    ("held_mib", "disk_mib", "host_mib", "proposed"),
    [
        (500, 0, 10**6, None),  # everything fits: the present limit would be proposed
        (550, 20, 10**6, None),
        (500, 500, 10**6, 1500),  # managed memory does not show the need, but process and disk do
        (1200, 0, 10**6, 2000),
        (1200, 0, 3000, None),  # two workers of 2,000 MiB on a host of 3,000
    ],
)
def test_a_memory_limit_is_proposed_only_if_it_differs_and_the_host_has_it(held_mib, disk_mib, host_mib, proposed):
    run = Cluster(2).run([Task(1.0, nbytes=10)] * 40)
    samples = [(worker, time, held_mib * MIB, disk_mib * MIB) for worker in range(2) for time in (0.5, 15.0)]
    samples += [(worker, 0.1, 1.0, 0) for worker in range(2)]
    seen = with_memory(run, samples, 1000 * MIB, memory_bytes=host_mib * MIB)
    remedy = MEMORY_SPILL.look(seen).remedy
    assert remedy
    assert ("memory_limit=" in remedy) is (proposed is not None)
    assert proposed is None or f"'{proposed}MiB'" in remedy


@pytest.mark.parametrize(("limit_mib", "fits"), [(0, True), (1000, True), (100, False)])
def test_sending_all_at_once_is_advised_only_if_the_results_fit_into_memory(limit_mib, fits):
    run = Cluster(4).run(
        [Task(1.0, graph=i, nbytes=int(100 * MIB)) for i in range(12)],
        [Graph(after=i - 1) if i else Graph() for i in range(12)],
    )
    run = replace(run, trial=replace(run.trial, metrics=replace(run.metrics, elapsed_s=12.0)))
    seen = with_memory(run, [(0, 0.5, 100 * MIB, 0)], limit_mib * MIB)
    finding = find(seen)["results-awaited-in-loop"]
    assert ("as_completed" in finding.remedy) is not fits
    assert (finding.gain is not None) is fits


# ------------------------------------------------------------------ what the client does already


@pytest.mark.parametrize(("takes", "already"), [(1, False), (4, True)])
def test_as_completed_is_not_advised_to_a_client_that_handles_results_as_they_come(takes, already):
    """A client that stores all results at the end, or each as it comes."""
    run = Cluster(2).run([Task(1.0)] * 8)
    store, wait = ("my_job.py:9 store", "cursor.execute", 0), ("my_job.py:8 main", "", 1)
    rows = [(4.2, wait)] if takes == 1 else [(1.0, wait), *[(0.2, store), (0.8, wait)] * 3]
    finding = find(watched(run, *rows, (6.0, store)))["client-busy"]
    assert finding.remedy
    assert ("as_completed" in finding.remedy) is not already
