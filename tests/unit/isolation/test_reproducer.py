"""Reproducer scripts, some of which are run, and the bug report and notebook about them."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from scalescope import workloads
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.diagnosis.verdict import diagnose
from scalescope.isolation import bug_report, notebook, reproducer
from scalescope.isolation.reduce import Reduction, ReductionStep, SymptomReading
from scalescope.isolation.removals import Setting
from scalescope.isolation.result import Isolation, Seen
from scalescope.model.metrics import Metrics
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask, Submission
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState
from scalescope.studies.symptom import FindingSymptom, metric_symptom

FEW = FindingSymptom("too-few-partitions")
GRAPH = RecordedGraph(
    ("secret_name",), tuple([RecordedTask(0, 0.1)] * 200 + [RecordedTask(0, 0.2, (0, 1), 1, 1)]), (Submission(),) * 2
)


def isolation(
    workload: str, workers: int, used: int, *, stopped: str = "", notes: Any = (), **params: Any
) -> Isolation:
    loaded = workloads.load(workload)
    point = Point(workers, 1, loaded.bind(params), {"distributed.scheduler.work-stealing": False} if notes else {})
    busy, idle = float(used), float(workers - used)
    metrics = Metrics(
        makespan_s=1,
        elapsed_s=1,
        work_s=used,
        span_s=1,
        ideal_s=1,
        efficiency=used / workers,
        schedule_quality=1,
        parallelism=used,
        tasks=used,
        widest_stage=used,
        workers_used=used,
        peak_parallelism=used,
        mean_parallelism=used,
        peak_runnable=used,
        worker_time_s={"busy": busy, "tail": idle},
    )
    facts = {
        "packages": {"dask": "2026.8.0", "distributed": "2026.8.0", "secret-package": "1"},
        "host": {"python": "3.11.7", "hostname": "secret-host", "executable": "/home/secret/python"},
        "cluster": {"cannot_show": "contention between processes"},
    }
    trial = Trial("k", point, 0, False, TrialState.VALID, metrics=metrics, facts=facts)
    state = Setting(loaded, SimulatedSpec(), point)
    steps = (
        ReductionStep("local cluster → simulated", state, SymptomReading(True, "1 used"), True),
        ReductionStep("/home/secret/data.py:main → replay", state, SymptomReading(False, "2 used"), False),
        ReductionStep(
            "threads per worker 2 → 1", state, SymptomReading(False, "no cluster", "it did not start"), False
        ),
    )
    finding = diagnose(state.sweep, [trial]).findings[0]
    seen = (Seen(trial, True), Seen(trial, False))
    return Isolation(
        "r1", state.sweep, seen, finding, FEW.words, trial, Reduction(state, steps, stopped), trial, tuple(notes)
    )


BEAM = isolation("beam-pardo", 2, 1, items=2, stages=1, seconds=0.1)
FIXED = isolation("beam-pardo", 2, 1, items=2, stages=1, seconds=0.1, npartitions="items")
CASES = {
    "beam-pardo": BEAM,
    "bag-map": isolation("bag-map", 101, 51, items=101, seconds=0.1, partition_size=None),
    "futures-map": isolation("futures-map", 4, 2, items=4, seconds=0.1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_reproducer_is_short_and_imports_only_dask_or_beam(name: str) -> None:
    script = reproducer.write(CASES[name], FEW)
    assert script.text.count("\n") <= 60
    assert max(map(len, script.text.splitlines())) <= 120
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(script.text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= {
        "logging", "sys", "time", "apache_beam", "dask", "distributed",
    }  # fmt: skip


def test_a_reproducer_keeps_the_partition_options() -> None:
    assert "OPTIONS = []" in reproducer.write(BEAM, FEW).text
    assert "OPTIONS = ['--dask_npartitions=2']" in reproducer.write(FIXED, FEW).text
    bag = isolation("bag-map", 4, 2, items=4, partition_size=2)
    assert "OPTIONS = {'partition_size': 2}" in reproducer.write(bag, FEW).text


def test_a_reproducer_keeps_the_dask_configuration() -> None:
    text = reproducer.write(isolation("futures-map", 4, 2, items=4, notes=["x"]), FEW).text
    assert "dask.config.set({'distributed.scheduler.work-stealing': False})" in text


def test_a_reproducer_checks_the_condition_of_the_symptom() -> None:
    assert (
        "shows = workers_used < 0.6 * workers"
        in reproducer.write(BEAM, metric_symptom("workers_used < 0.6 * workers")).text
    )
    assert "shows = efficiency < 0.6" in reproducer.write(BEAM, metric_symptom("efficiency < 0.6")).text
    assert "shows = workers_used < 0.75 * workers" in reproducer.write(BEAM, FEW).text


def test_a_replayed_graph_is_written_compactly_and_without_task_names() -> None:
    replayed = isolation("replay", 4, 1, graph="graph.json")
    text = reproducer.write(replayed, FEW, GRAPH).text
    assert "TASKS = [*[(0, 0.1, [], 0, 0)] * 200, (0, 0.2, [0, 1], 1, 1)]" in text
    assert "secret" not in text
    half = isolation("replay", 4, 1, graph="graph.json", tasks=7, scale=0.5)
    assert "TASKS = [*[(0, 0.05, [], 0, 0)] * 7]" in reproducer.write(half, FEW, GRAPH).text


def test_a_workload_that_cannot_be_reproduced_has_no_script_and_a_reason() -> None:
    none = reproducer.write(isolation("tree-reduce", 4, 1, items=8), FEW)
    assert (none.text, none.needs) == ("", ())
    assert "tree-reduce" in none.problem
    chain = RecordedGraph(("a",), tuple(RecordedTask(0, i / 7, (i - 1,) if i else ()) for i in range(900)))
    long = reproducer.write(isolation("replay", 4, 1, graph="graph.json"), FEW, chain)
    assert long.text == ""
    assert "900 tasks" in long.problem


# ------------------------------------------------------------------ run


def test_a_reproducer_that_shows_the_symptom_is_confirmed() -> None:
    done = reproducer.confirm(reproducer.write(CASES["bag-map"], FEW).text)
    assert done.confirmed, done
    assert done.problem == ""
    assert done.output.splitlines()[1].split()[:4] == ["101", "101", "103", "51"]


def test_a_reproducer_without_the_symptom_is_not_confirmed() -> None:
    done = reproducer.confirm(reproducer.write(CASES["futures-map"], FEW).text)
    assert not done.confirmed
    assert done.problem
    assert done.output.endswith("does not show.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import scalescope", "import of scalescope halted"),
        ("import scalescope.errors", "scalescope"),
        ("raise SystemExit(1)", "status 1"),
        ("print('The symptom shows.'); raise SystemExit(2)", "status 2"),
        ("import os; os._exit(1)", "nothing on standard error"),
        ("import time; time.sleep(60)", "did not end within 2 s"),
        ("import sibling", "No module named 'sibling'"),
    ],
)
def test_a_script_that_fails_or_hangs_is_not_confirmed(text: str, problem: str) -> None:
    done = reproducer.confirm(text, timeout_s=2)
    assert not done.confirmed
    assert problem in done.problem


# ------------------------------------------------------------------ around it


def test_a_bug_report_contains_the_script_and_the_isolation() -> None:
    script = reproducer.write(BEAM, FEW)
    text = bug_report.write(BEAM, script, reproducer.Confirmation(True, "1 of 2\nThe symptom shows.", 1.0))
    assert text.startswith("# Apache Beam on Dask: ")
    assert script.text.strip() in text
    assert "| isolated | 2 | 2 | 1 | 1 | 1 |" in text
    assert "simulated: no difference" in text
    assert "contention between processes" in text
    assert "- dask 2026.8.0" in text
    assert "NOT CONFIRMED" not in text


def test_a_bug_report_contains_nothing_private_of_this_machine() -> None:
    text = bug_report.write(BEAM, reproducer.write(BEAM, FEW), None)
    assert "secret" not in text


def test_a_bug_report_says_loudly_that_its_script_was_not_confirmed() -> None:
    script = reproducer.write(BEAM, FEW)
    doubtful = reproducer.Confirmation(False, "", 1.0, "it ended with status 3: no /home/me/x.py")
    assert "**NOT CONFIRMED: it ended with status 3: no x.py." in bug_report.write(BEAM, script, doubtful)
    assert "None: no script." in bug_report.write(BEAM, reproducer.Reproducer("", "no script"), None)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mine at /home/me/code/mine.py:main", "mine at mine.py:main"),
        ("~/x/y.py", "y.py"),
        (r"C:\Users\me\y.py", "y.py"),
        ("worker tcp://10.0.0.7:4000 died", "worker <address> died"),
        ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
        ("see https://github.com/apache/beam/pull/33805", "see https://github.com/apache/beam/pull/33805"),
        ("items/worker and 3/4", "items/worker and 3/4"),
    ],
)
def test_folders_addresses_and_passwords_are_left_out_of_a_bug_report(text: str, left: str) -> None:
    assert bug_report.without_places(text) == left


def test_the_notebook_lists_every_step_and_whether_it_was_kept(printed: Any) -> None:
    shown = printed(notebook.render(BEAM), 200)
    assert "simulated: 1 used → kept" in shown
    assert "put back (symptom gone)" in shown
    assert "put back (not measured" in shown
    assert "Isolated in 3 trials" in shown
    early = isolation("beam-pardo", 2, 1, items=2, stopped="the 3 minutes were over", notes=["x cannot be replayed"])
    shown = printed(notebook.render(early), 200)
    assert "after 3 trials" in shown
    assert "x cannot be replayed" in shown
    assert "**kept**" in notebook.to_markdown(early)
