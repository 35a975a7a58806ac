"""Writes `docs/workloads.md` from the declarations: `python docs/generate_workloads.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from scalescope import workloads
from scalescope.model.workload import Workload, WorkloadParameter

PAGE = Path(__file__).with_name("workloads.md")
HEAD = """# Workloads

What a sweep runs: `scalescope sweep --workload NAME --param PARAMETER=VALUE`, or `"workload"` and `"params"` in YAML
and Python. Any parameter can be an axis as well: `--axis items=100,200,400`. A function of your own is a workload, too:
[adding-a-workload.md](adding-a-workload.md).

Workloads that are **modelled** sleep for the time that their tasks stand for. On the simulated cluster only that sleep
is charged, so a trial takes seconds and repeats to the last bit; the others compute, and need real processes.

This page is written by `docs/generate_workloads.py`; change the module of the workload instead.

| Workload | What it does | What it stresses | Install |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page as the workloads declare it."""
    return "".join([HEAD, *map(_row, workloads.builtin()), *map(_section, workloads.builtin())])


def _row(workload: Workload) -> str:
    return (
        f"| [`{workload.name}`](#{workload.name}) | {workload.summary} | {workload.stresses} | "
        f"{_install(workload.extra)} |\n"
    )


def _section(workload: Workload) -> str:
    facts = [f"Version {workload.version}", *(["modelled"] if workload.modelled else [])]
    facts.append(f"needs {', '.join(workload.packages)}")
    facts += [f"runs on {' or '.join(workload.kinds)} only"] if workload.kinds else []
    facts += [f"{used.purpose} with {used.name} ({_install(used.extra)})" for used in workload.uses]
    rows = "".join(map(_parameter, workload.parameters))
    head = "| Parameter | Type | Default | Meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {workload.name}\n\n{workload.summary} {'; '.join(facts)}.\n\n{head}{rows}"


def _parameter(parameter: WorkloadParameter) -> str:
    default = "required" if parameter.required else f"`{json.dumps(parameter.default)}`"
    return f"| `{parameter.name}` | {'; '.join(_type(parameter))} | {default} | {parameter.help} |\n"


def _type(parameter: WorkloadParameter) -> Iterable[str]:
    if parameter.kind == "int" or not parameter.choices:
        yield parameter.kind
    if parameter.minimum is not None:
        yield f"at least {parameter.minimum:g}"
    if parameter.maximum is not None:
        yield f"at most {parameter.maximum:g}"
    if parameter.choices:
        yield " or ".join(f"`{json.dumps(choice)}`" for choice in parameter.choices)
    if parameter.optional:
        yield "or null"


def _install(extra: str) -> str:
    return f"`scalescope[{extra}]`" if extra else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
