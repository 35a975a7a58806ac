"""Parameters of a fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.studies.parameters import AtPoint, OneWorkload


@dataclass(frozen=True, kw_only=True)
class FixParameters(OneWorkload, AtPoint):
    """Patch a script or a workload where a finding has a remedy, and prove that it is faster and does the same."""

    cluster: Annotated[
        str | dict[str, Any],
        Parameter(
            "Where the workload runs: a kind whose workers are on this machine. Empty: a `LocalCluster`.",
            examples=("simulated", {"kind": "local", "memory_limit_mb": 2048}),
            names="cluster",
            metavar="KIND",
            syntax="cluster",
        ),
    ] = ""
    script: Annotated[str, Parameter("The script, or with `module` the name of a module.", metavar="SCRIPT.py")] = ""
    arguments: Annotated[list[str], Parameter("Arguments of the script.", syntax="names")] = field(default_factory=list)
    module: Annotated[bool, Parameter("Whether `script` is the name of a module or package.")] = False
    folder: Annotated[
        str, Parameter("Folder in which it runs, and that is copied. Empty: the working folder.", metavar="FOLDER")
    ] = ""
    budget_s: Annotated[
        float,
        Parameter(
            "Seconds for the runs of one patch. 0: five times the script's own time.",
            title="Budget of a patch, seconds",
            minimum=0,
        ),
    ] = 0.0
    side_effects: Annotated[
        bool,
        Parameter(
            "Run the script several times although it writes outside its folder or connects to other machines.",
            title="Allow side effects",
        ),
    ] = False
