"""Parameters that all studies share: what to run, where, with which software, and how long at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.sweep import POINT_SCHEMA, TRIAL_TIMEOUT_S, Seed, TrialTimeout, WorkloadParams

WORKLOAD = Parameter(
    "Workload, as for a sweep. Empty: the workload of the run.",
    names="workload",
    option=("--workload", "-w"),
    metavar="NAME",
)
ENVIRONMENT = Parameter(
    "Software to run it with: requirements, or the path of a Python interpreter, as for a sweep.",
    option=("--environment", "-e"),
    metavar="REQUIREMENTS",
    examples=("apache-beam==2.50.0 dask[distributed]==2023.9.1",),
)
RUN = Parameter(
    "A finished run: an id, the start of an id, or `latest`. Parameters not given are taken from its worst point.",
    metavar="[RUN]",
    syntax="argument",
)
OTHERS_CODE = Parameter(
    "Run code that another user's run names (workload, interpreter, cluster). Without this option you are asked; "
    "without a terminal the command fails.",
    title="Run another user's code",
)
METRIC = Parameter(
    "A measured number (tasks, workers_used, makespan_s, efficiency, ...), or an expression such as workers_used / "
    "workers.",
    names="metric",
    option=("--metric", "-m"),
    metavar="NUMBER",
)
MINUTES = Parameter(
    "Minutes after which no new trial starts; the answer then rests on what was measured.",
    title="Time limit, minutes",
    minimum=0.01,
    maximum=7 * 24 * 60,
)
SMALLEST_EFFECT = Parameter(
    "Differences up to this share count as none: 0.03 is 3 %.",
    title="Smallest effect, as a share",
    minimum=0,
    maximum=0.99,
)


def named(help: str, title: str, *option: str, example: Mapping[str, Any]) -> Parameter:
    """A parameter that maps names of axes to single values."""
    return Parameter(
        help,
        title=title,
        option=option,
        metavar="NAME=VALUE",
        syntax="values",
        examples=(example,),
        schema=POINT_SCHEMA,
    )


@dataclass(frozen=True, kw_only=True)
class OneWorkload:
    """Parameters of studies of one workload."""

    workload: Annotated[str, WORKLOAD] = ""


@dataclass(frozen=True, kw_only=True)
class AtPoint:
    """Parameters of studies that measure one point."""

    values: Annotated[
        Mapping[str, Any],
        named(
            "The point to measure: a value for each axis.",
            "Point to measure",
            "--axis",
            "-a",
            example={"workers": 200, "items": 199},
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Parameters that say what is run, where and with which software."""

    params: WorkloadParams = field(default_factory=dict)
    cluster: Annotated[
        str | dict[str, Any],
        Parameter(
            "Where to run it, as for a sweep. Empty: the cluster of the run, or else simulated.",
            examples=("simulated", {"kind": "local", "memory_limit_mb": 2048}),
            names="cluster",
            option=("--cluster", "-c"),
            metavar="KIND",
            syntax="cluster",
        ),
    ] = ""
    environment: Annotated[str, ENVIRONMENT] = ""
    run: Annotated[str, RUN] = ""
    others_code: Annotated[bool, OTHERS_CODE] = False
    seed: Seed = 0
    trial_timeout_s: TrialTimeout = TRIAL_TIMEOUT_S


@dataclass(frozen=True, kw_only=True)
class StudyParameters(StudySettings):
    """Parameters of studies whose sweeps grow."""

    minutes: Annotated[float, MINUTES] = 60.0
