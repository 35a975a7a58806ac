"""`scalescope workloads`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from scalescope.cli.options import Json, argument
from scalescope.cli.output import print_json, print_table, say
from scalescope.model.workload import Workload


def workloads(name: Annotated[str, argument(help="Workload to show.")] = "", as_json: Json = False) -> None:
    """List the workloads, or the parameters of one."""
    from scalescope import workloads as library

    found = [library.load(name)] if name else library.builtin()
    if as_json:
        fields = ("name", "version", "summary", "packages", "modelled")
        listed = [{field: getattr(workload, field) for field in fields} for workload in found]
        for mapping, workload in zip(listed, found, strict=True):
            mapping["parameters"] = [asdict(parameter) for parameter in workload.parameters]
        print_json(listed)
    elif name:
        _print_workload(found[0])
    else:
        print_table(("workload", "what it does"), [(workload.name, workload.summary) for workload in found])
        say("\nParameters: `scalescope workloads NAME`. Functions of your own: module:function or path.py:function.")


def _print_workload(workload: Workload) -> None:
    rows = []
    for parameter in workload.parameters:
        default = "required" if parameter.required else json.dumps(parameter.default)
        rows.append((parameter.name, parameter.kind, default, parameter.help))
    print(f"{workload.name}, version {workload.version}: {workload.summary}\n")
    print_table(("parameter", "type", "default", "meaning"), rows)
