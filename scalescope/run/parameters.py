"""Parameters of a run besides the sweep itself: execution, cost, and where results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.sweep import Sweep

MAX_REFINED = 1000

BUDGET = Parameter(
    "What the run may cost: core_hours, hours (of measuring), or money, which needs a price table (the environment "
    "variable SCALESCOPE_PRICES names its file). No trial begins that would exceed the budget. The verdict then covers "
    "the finished trials, and the same sweep with a larger budget continues.",
    examples=({"core_hours": 20},),
    schema={"additionalProperties": {"type": "number", "minimum": 0}},
    syntax="values",
)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Ways to carry out the trials of a sweep."""

    parallel_clusters: Annotated[
        int,
        Parameter(
            "How many simulated clusters run at the same time, each on its own cores; they share the trials.", minimum=1
        ),
    ] = 1
    refine: Annotated[
        int,
        Parameter(
            "Most points to add between the given ones, to find where throughput stops growing.",
            minimum=0,
            maximum=MAX_REFINED,
        ),
    ] = 0
    verify: Annotated[
        bool,
        Parameter(
            "Also apply each suggested fix that is a parameter or a setting, and report the measured effect.",
            title="Verify remedies",
        ),
    ] = False
    explain: Annotated[
        bool,
        Parameter(
            "Also run control experiments at the worst point; each can rule out a cause: half the workers, one worker, "
            "twice the partitions, the simulated cluster (no memory limits or interpreter lock), zero-length tasks.",
            title="Explain by experiments",
        ),
    ] = False
    budget: Annotated[Mapping[str, Any], BUDGET] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Place of the results, and whether an earlier run continues."""

    store: Annotated[
        str,
        Parameter(
            "Where results are kept: a path, a database URL, or a saved block such as result-store/team. Empty: the "
            "environment variable SCALESCOPE_STORE, or else a file in the user's data folder. Put an address with a "
            "password in that variable or in a block: Prefect shows the parameters of flows.",
            metavar="ADDRESS",
        ),
    ] = ""
    fresh: Annotated[bool, Parameter("Begin a new run, even where one can be continued.", title="Fresh run")] = False


@dataclass(frozen=True, kw_only=True)
class Reported(Storage):
    """Places of the results and of a report."""

    report: Annotated[
        str,
        Parameter(
            "Also write the result as one HTML file: a path, or an address such as s3://bucket/report.html. Empty: "
            "no file. In a deployment, a relative path is in the folder of the run's records.",
            title="Report file",
            metavar="FILE",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class RunParameters(Reported, Execution, Sweep):
    """All parameters of a run of a sweep."""
