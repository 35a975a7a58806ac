"""Writes a script that shows an isolated symptom with only Dask or Beam and the standard library, and runs it."""

from __future__ import annotations

import ast
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import Template
from time import monotonic

from scalescope.diagnosis import causes
from scalescope.isolation import reproducer_texts as parts
from scalescope.isolation.removals import Setting
from scalescope.isolation.result import Isolation
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask
from scalescope.model.words import plural
from scalescope.studies.scripts import run_alone
from scalescope.studies.symptom import MetricSymptom, Symptom

MOST_LINES = 60
# Longest line of a script, in characters.
WIDTH = 110
# Seconds after which a script that is tried out is stopped.
TIMEOUT_S = 120.0
# Exit statuses of a script if the symptom shows, and if it does not.
SHOWN, GONE = 1, 0
# Numbers that a script measures; a symptom's condition on only these numbers is copied into the script.
COUNTED = frozenset({"workers", "threads", "items", "tasks", "workers_used", "makespan_s", "work_s", "efficiency"})

_GUARDED = (
    "import runpy, sys; sys.modules['scalescope'] = None; "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass(frozen=True)
class Reproducer:
    """The source of a script and the distributions that it needs; or an empty source and the reason why."""

    text: str
    problem: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Confirmation:
    """Outcome of running a script."""

    confirmed: bool
    output: str
    seconds: float
    problem: str = ""


def write(isolation: Isolation, symptom: Symptom, graph: RecordedGraph | None = None) -> Reproducer:
    """The script for an isolated symptom; `graph` is the graph of a `replay` workload."""
    setting = isolation.setting
    part = parts.WORKLOAD_SCRIPTS.get(setting.workload.name)
    if part is None:
        return Reproducer(
            "",
            f"the symptom needs the code of {setting.workload.name}: a replay of its graph does not show the symptom, "
            "or was not possible. Add that workload to the bug report",
        )
    if isolation.trial.metrics is None:
        return Reproducer("", "the isolated trial measured nothing. Add the workload and its error to the bug report")
    config = dict(setting.point.dask_config)
    text = Template(parts.SCRIPT).substitute(
        title=_title(isolation),
        needs=" ".join(part.needs),
        imports=part.imports + ("import dask\n" if config else ""),
        config=f"dask.config.set({config!r})\n" if config else "",
        constants=_constants(setting, graph),
        functions=part.functions,
        options=part.cluster_options,
        items="ITEMS" if graph is None else "len(TASKS)",
        condition=_condition(isolation, symptom),
    )
    lines = text.count("\n")
    if lines > MOST_LINES:
        tasks = 0 if graph is None else len(_tasks(setting, graph))
        why = f"a script needs {lines} lines, more than {MOST_LINES}: the smallest graph has {plural(tasks, 'task')}"
        return Reproducer("", why)
    ast.parse(text)
    return Reproducer(text, needs=part.needs)


def confirm(text: str, *, timeout_s: float = TIMEOUT_S) -> Confirmation:
    """Run a script in a new process in an empty folder, where Scalescope cannot be imported."""
    began = monotonic()
    try:
        done = run_alone(text, timeout_s, options=("-I", "-c", _GUARDED))
    except subprocess.TimeoutExpired:
        return Confirmation(False, "", monotonic() - began, f"the script did not end within {timeout_s:g} s")
    seconds, output = monotonic() - began, done.stdout.strip()
    if done.returncode == SHOWN and output.endswith(parts.SHOWS):
        return Confirmation(True, output, seconds)
    if done.returncode == GONE:
        return Confirmation(False, output, seconds, "the script ran, but did not show the symptom")
    last = (done.stderr.strip() or "nothing on standard error").splitlines()[-1]
    return Confirmation(False, output, seconds, f"the script ended with status {done.returncode}: {last}")


# ------------------------------------------------------------------ parts of the script


def _title(isolation: Isolation) -> str:
    metrics, point = isolation.trial.metrics, isolation.setting.point
    assert metrics is not None
    what = plural(metrics.tasks, "task") if point.items is None else plural(point.items, "item")
    return f"{what} on {plural(point.workers, 'worker')}: {metrics.workers_used:,} used."


def _constants(setting: Setting, graph: RecordedGraph | None) -> str:
    point = setting.point
    lines = [f"WORKERS, THREADS = {point.workers}, {point.threads_per_worker}"]
    if graph is not None:
        lines += _literals(setting, graph)
    else:
        params = point.params
        lines.append(f"ITEMS, STAGES, SECONDS = {params['items']}, {params['stages']}, {params['seconds']}")
        lines += parts.WORKLOAD_SCRIPTS[setting.workload.name].partition_lines(_partitions(params))
    return "\n".join(lines)


def _partitions(params: Mapping[str, object]) -> dict[str, int]:
    given = {name: params[name] for name in ("npartitions", "partition_size") if params.get(name) is not None}
    return {name: int(str(params["items"] if value == "items" else value)) for name, value in given.items()}


def _tasks(setting: Setting, graph: RecordedGraph) -> tuple[RecordedTask, ...]:
    tasks = setting.number("tasks")
    return graph.tasks if tasks is None else graph.first(tasks).tasks


def _literals(setting: Setting, graph: RecordedGraph) -> list[str]:
    # The graph as Python; runs of equal tasks are written once; stages have numbers, because names are the user's.
    scale = setting.point.params.get("scale", 1.0)
    assert isinstance(scale, int | float)
    kept = graph.first(len(_tasks(setting, graph)))
    rows = [
        (task.stage, float(f"{task.seconds * scale:.3g}"), list(task.needs), task.allowed, task.submission)
        for task in kept.tasks
    ]
    pieces = []
    for row, same in groupby(rows):
        count = sum(1 for _ in same)
        pieces.append(f"*[{row!r}] * {count}" if count > 1 else repr(row))
    sent = [(each.after, float(f"{(each.pause_s + each.waited_s) * scale:.3g}")) for each in kept.submissions]
    return [
        "# stage, seconds, numbers of needed tasks, number of workers that may run the task (0: any), submission",
        *_wrapped("TASKS = [", pieces),
        "# for each submission: the one whose results it waits for (-1: none), and seconds of pause before it",
        *_wrapped("SUBMISSIONS = [", [repr(row) for row in sent]),
    ]


def _wrapped(begin: str, pieces: Sequence[str]) -> list[str]:
    joined = begin + ", ".join(pieces) + "]"
    return textwrap.wrap(joined, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _condition(isolation: Isolation, symptom: Symptom) -> str:
    # The symptom's own comparison if the script measures its numbers; else half-way between the measured value and 1.
    if isinstance(symptom, MetricSymptom) and symptom.names <= COUNTED:
        return symptom.text
    metrics, point = isolation.trial.metrics, isolation.setting.point
    assert metrics is not None
    cause = None if isinstance(symptom, MetricSymptom) else causes.by_code().get(symptom.code)
    if cause is not None and cause.workers_unused and metrics.workers_used < point.workers:
        return f"workers_used < {(metrics.workers_used / point.workers + 1) / 2:.3g} * workers"
    return f"efficiency < {(metrics.efficiency + 1) / 2:.3g}"
