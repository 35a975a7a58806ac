"""Generates the pages of docs/reference from declarations in the code: `python docs/generate.py` writes them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import typer.main
from pydantic import BaseModel, Field, TypeAdapter
from typer.cli import get_docs_for_click

from scalescope import workloads
from scalescope.analysis.factors import FACTORS, TITLES, WORK
from scalescope.cli.main import app
from scalescope.diagnosis.cause import NOTEWORTHY, SEVERE, Cause
from scalescope.diagnosis.causes import by_code, of_sweeps, of_trials
from scalescope.errors import ExitStatus
from scalescope.model.cluster import ClusterSpec, kinds
from scalescope.model.finding import Finding, Severity
from scalescope.model.metrics import METRICS, PARTS, Metric
from scalescope.model.parameters import Declared, declared
from scalescope.model.trial import TrialState
from scalescope.model.workload import Workload, WorkloadParameter
from scalescope.report.brief import BriefAnswer

FOLDER = Path(__file__).with_name("reference")
EXAMPLES = Path(__file__).with_name("cause_examples.py")
OUTSIDE = Path(__file__).parents[1] / "evidence" / "outside.md"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells) + "\n"


# ------------------------------------------------------------------ causes


# For causes without an example here: the page with an example, by the start of the cause's code
ELSEWHERE = {
    "gpu-": "[GPUs](../../gpu.md)",
    "prefect-": "[a Prefect flow on Dask](../../prefect-on-dask.md)",
    "unfinished-tasks": "[a Prefect flow on Dask](../../prefect-on-dask.md)",
}


def causes() -> str:
    severities = ", ".join(severity.word for severity in Severity)
    return (
        "# Causes\n\nFor those who want to know what a finding rests on (`scalescope show`).\n\nEvery finding has "
        "one of these codes. Findings are ranked by severity "
        f"({severities}), then by the worker time lost. A cause that loses less than {NOTEWORTHY:.0%} of the worker "
        f"time is not reported. From {SEVERE:.0%} on, a cause with a remedy is critical and `scalescope sweep` exits "
        "with 1.\n\n## Causes seen in one trial\n\nA point has such a finding when at least half of its trials have "
        f"it.\n\n{_listed(of_trials())}## Causes seen only in a sweep\n\n{_listed(of_sweeps())}"
    )


def _listed(causes: Iterable[Cause[Any]]) -> str:
    return table(("Code", "Cause"), ((f"[`{each.code}`](causes/{each.code}.md)", each.title) for each in causes))


def cause_page(cause: Cause[Any]) -> str:
    facts = {
        "What you see": cause.needs,
        "What to do": cause.remedy,
        "What it brought others": _brought(cause.code),
        "What rules it out": cause.ruled_out_by,
        "Where the time is lost": ", ".join(PARTS[part].title for part in cause.parts),
        "Not named with it": ", ".join(f"[`{code}`]({code}.md)" for code in cause.rules_out),
        "What the fix changes": ", ".join(cause.changes) if cause.predicts else "nothing that can be predicted",
        "Example": next((page for code, page in ELSEWHERE.items() if cause.code.startswith(code)), ""),
        "More": f"<{cause.link}>" if cause.link else "",
    }
    lines = "".join(f"- **{name}**: {text.rstrip('.')}.\n" for name, text in facts.items() if text)
    name = cause.code.replace("-", "_")
    codes = "".join(map(_code, ("Code that has it", "Code without it"), (name, f"{name}_mended")))
    return (
        f"# {cause.title}: `{cause.code}`\n\nFor those whose verdict names it: `scalescope show` has the evidence; "
        f"[all causes](../causes.md).\n\n{lines}{codes}"
    )


def _code(heading: str, name: str) -> str:
    """A section with the example of this name from cause_examples.py; empty if there is none."""
    if not (body := _body(name)):
        return ""
    function = _examples()[name]
    workers = ", ".join(map(str, getattr(function, "workers", (16,))))
    kind = "local" if hasattr(function, "cluster") else "simulated"
    threads = f" with {function.threads} threads each" if getattr(function, "threads", 1) > 1 else ""
    tried = f"{workers} {kind} worker{'' if workers == '1' else 's'}{threads}"
    return f"\n## {heading}\n\nTried on {tried}.\n\n```python\n{body}```\n"


@cache
def _examples() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES))


def _body(name: str) -> str:
    """The lines of a function of cause_examples.py; empty if there is none."""
    found = re.search(rf"^def {name}\(client.*\):\n((?:\n|    .*\n)+)", EXAMPLES.read_text(encoding="utf-8"), re.M)
    return textwrap.dedent(found[1]).strip("\n") + "\n" if found else ""


@cache
def _cases() -> Sequence[tuple[Sequence[str], float, str, str]]:
    """Labels, speed-up, case and remedy for each workload in the table of evidence/outside.md."""
    rows = (
        line.strip("| ").split(" | ") for line in OUTSIDE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"
    )
    found = ((row, re.search(r"([\d.]+) x faster", row[8])) for row in rows if len(row) > 8)
    return [(row[3].split(" or "), float(times[1]), row[0], row[4]) for row, times in found if times]


def _brought(code: str) -> str:
    cases = sorted((times, case, remedy) for labels, times, case, remedy in _cases() if code in labels)
    if not cases:
        return ""
    times, case, remedy = cases[len(cases) // 2]
    set_of = f"of {len(cases)} [workloads](../../outside-set.md) with this cause"
    return f"{times:g} times as fast in {case} ({remedy}), {set_of}"


# ------------------------------------------------------------------ metrics


def metrics() -> str:
    return (
        "# Metrics\n\nFor those who write `--require` or `--metric`: what every trial measures. "
        "P: threads asked for (workers × threads per worker); T1: `work_s`; "
        "T∞: `span_s`. Conditions (`--require`, `isolate`, `find-threshold`, ...) may name any of these numbers, "
        "`workers`, `threads`, `items`, and the parts of worker time as shares from 0 to 1. ↑: more is better.\n\n"
        + table(("Metric", "In tables", "Unit", "Over repeats", "Meaning"), map(_metric, METRICS.values()))
        + "## Worker time\n\nP × the time of the workload's call is what was paid for. It is divided without remainder "
        "into these parts:\n\n"
        + table(
            ("Part", "In reports", "What the thread was doing"),
            ((f"`{name}`", part.title, part.help) for name, part in PARTS.items()),
        )
        + "## Factors of the efficiency\n\nWith A₀ = P × makespan and Aₖ = Aₖ₋₁ − (parts of factor k), factor k is "
        "Aₖ / Aₖ₋₁; their product is the efficiency ([more](../concepts.md#factors-of-the-efficiency)).\n\n"
        + table(
            ("Factor", "In reports", "Parts", "The share of the threads' time in which"),
            (
                (f"`{name}`", factor.title, ", ".join(f"`{part}`" for part in factor.parts), factor.help)
                for name, factor in FACTORS.items()
            ),
        )
        + f"`{WORK}` ({TITLES[WORK]}) is T1 of the smallest size for as many items, divided by T1. With it, the "
        "product is the speed-up per thread.\n"
    )


def _metric(metric: Metric) -> Sequence[object]:
    shown = [] if metric.rank is None else dict.fromkeys((metric.title, metric.short or metric.title))
    repeats = f"{metric.combine}; in tables the mean and its 95 % interval" if metric.interval else metric.combine
    name = f"`{metric.name}`" + (" ↑" if metric.larger_is_better else "")
    return name, ", ".join(f"“{each}”" for each in shown), metric.unit, repeats, metric.help


# ------------------------------------------------------------------ clusters


def clusters() -> str:
    rows = (
        (f"[`{each.kind}`](#{each.kind})", each.summary().rstrip("."), f"{each.max_workers:,}", _extra(each.extra))
        for each in kinds().values()
    )
    return (
        "# Kinds of clusters and their fields\n\nFor those who configure a cluster. "
        "On the command line `--cluster KIND --cluster-option NAME=VALUE`; in "
        'YAML and Python `{"kind": KIND, NAME: VALUE}`; the Prefect block of a kind has the same fields.\n\n'
        + table(("Kind", "What it is", "Most workers", "Install"), rows)
        + "".join(map(_kind, kinds().values()))
    )


def _kind(spec: type[ClusterSpec]) -> str:
    rows = ((f"`{each.name}`", _default(each), each.about.help) for each in declared(spec))
    example = f"For example `{json.dumps({'kind': spec.kind, **spec.example})}`\n\n" if spec.example else ""
    return f"## `{spec.kind}`\n\n{table(('Field', 'Default', 'Meaning'), rows)}{example}"


def _default(field: Declared) -> str:
    if field.required:
        return "required"
    return "" if field.default in (None, "", (), {}) else f"`{json.dumps(field.default).strip(chr(34))}`"


def _extra(extra: str) -> str:
    return f"extra [`{extra}`](../installing.md#extras)" if extra else ""


# ------------------------------------------------------------------ workloads


def builtin_workloads() -> str:
    rows = (
        (f"[`{each.name}`](#{each.name})", each.summary, each.stresses, _extra(each.extra))
        for each in workloads.builtin()
    )
    return (
        "# Workloads\n\nFor those who want one that is built in. A sweep runs one: "
        "`scalescope sweep --workload NAME --param PARAMETER=VALUE`. Any parameter can "
        "be an axis: `--axis items=100,200,400`. Workloads that are **modelled** sleep for the time that their tasks "
        "stand for, so that a simulated cluster shows them exactly; the others compute, and need real processes.\n\n"
        + table(("Workload", "What it does", "What it stresses", "Install"), rows)
        + "".join(map(_workload, workloads.builtin()))
    )


def _workload(workload: Workload) -> str:
    facts = [f"Version {workload.version}", *(["modelled"] if workload.modelled else [])]
    facts += [f"needs {', '.join(workload.packages)}"] if workload.packages else []
    facts += [f"runs on {' or '.join(workload.kinds)} only"] if workload.kinds else []
    facts += [f"{used.purpose} with {used.name} ({_extra(used.extra)})" for used in workload.uses]
    rows = ((f"`{each.name}`", _type(each), _given(each), each.help) for each in workload.parameters)
    return f"## {workload.name}\n\n{'; '.join(facts)}.\n\n{table(('Parameter', 'Type', 'Default', 'Meaning'), rows)}"


def _given(parameter: WorkloadParameter) -> str:
    return "required" if parameter.required else f"`{json.dumps(parameter.default)}`"


def _type(parameter: WorkloadParameter) -> str:
    choices = " or ".join(f"`{json.dumps(choice)}`" for choice in parameter.choices)
    facts = [choices or parameter.kind]
    facts += [f"at least {parameter.minimum:g}"] if parameter.minimum is not None else []
    facts += [f"at most {parameter.maximum:g}"] if parameter.maximum is not None else []
    return "; ".join([*facts, *(["or null"] if parameter.optional else [])])


# ------------------------------------------------------------------ commands


def commands() -> str:
    group = typer.main.get_command(app())
    for command in group.commands.values():  # type: ignore[attr-defined]
        command.short_help = (command.help or "").partition("\n\n")[0]  # otherwise click cuts it after 45 letters
    text = get_docs_for_click(obj=group, ctx=click.Context(group, info_name="scalescope"), name="scalescope")
    statuses = table(("Status", "Means"), ((status.value, status.help) for status in ExitStatus))
    text = text.replace("# `scalescope`\n", "# Commands\n\nFor those who look up an option of `scalescope`.\n", 1)
    return f"{text}\n## Exit statuses\n\n{statuses}"


# ------------------------------------------------------------------ JSON


class VerdictOfRun(BaseModel, extra="forbid"):
    """The verdict of a run."""

    line: str = Field(description="The verdict: what limits the work.")
    doubt: str = Field(description="Confidence in the line if something limits trust in it; otherwise empty.")
    trust: list[str] = Field(description="Limits of trust in the numbers, in sentences.")
    severity: Severity
    findings: list[Finding] = Field(description="Worst first.")


class Run(BaseModel, extra="forbid"):
    """The JSON of a run, as `scalescope show --json` prints it. Units: seconds, bytes, shares from 0 to 1."""

    version: int = Field(alias="schema", description="Grows when a key is removed or changes its meaning.")
    sweep: dict[str, Any] = Field(description="Id and parameters of the sweep.")
    verdict: VerdictOfRun
    points: list[dict[str, Any]] = Field(description="Settings of each point, and its metrics by name (metrics.html).")
    knees: list[dict[str, Any]] = Field(description="Where each series of sizes stops scaling.")
    trials: dict[TrialState, int]
    cluster: list[str]


# ------------------------------------------------------------------ all


PAGES = {
    "causes": causes,
    "metrics": metrics,
    "clusters": clusters,
    "workloads": builtin_workloads,
    "commands": commands,
}


def pages() -> dict[str, str]:
    """The text of each file in docs/reference, by its path there."""
    found = {f"{name}.md": page() for name, page in PAGES.items()}
    found |= {f"causes/{each.code}.md": cause_page(each) for each in by_code().values()}
    found["run.schema.json"] = json.dumps(Run.model_json_schema(), indent=1)
    found["brief.schema.json"] = json.dumps(TypeAdapter(BriefAnswer).json_schema(), indent=1)
    return {path: text.rstrip() + "\n" for path, text in found.items()}


def write() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path, text in pages().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
