"""Parameters of a run besides the sweep itself: how it is carried out, and where its results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.sweep import SweepParameters

MAX_REFINED = 1000

BUDGET = Parameter(
    "What the run may cost: any of core_hours, hours (of measuring), and money, which needs a price table (the "
    "environment variable SCALESCOPE_PRICES names it). No trial begins that would exceed it; what has finished is "
    "judged, and the same sweep with a larger budget continues.",
    examples=({"core_hours": 20},),
    schema={"additionalProperties": {"type": "number", "minimum": 0}},
    syntax="values",
)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the trials of a sweep are carried out."""

    parallel_clusters: Annotated[
        int,
        Parameter(
            "Simulated clusters that share the trials and run at the same time, each on cores of its own.", minimum=1
        ),
    ] = 1
    refine: Annotated[
        int,
        Parameter(
            "Points that may be added, between those asked for, until it is known where throughput stops growing.",
            minimum=0,
            maximum=MAX_REFINED,
        ),
    ] = 0
    verify: Annotated[
        bool,
        Parameter(
            "Run what findings advise, too, where that is a parameter, threads or a setting, and say what it brought.",
            title="Verify remedies",
        ),
    ] = False
    explain: Annotated[
        bool,
        Parameter(
            "Run experiments beside the worst point, too, each of which rules something out: half of the workers, and "
            "one; twice the partitions; the simulated cluster, which has no transfers, memory limits or interpreter "
            "lock; tasks of no length there.",
            title="Explain by experiments",
        ),
    ] = False
    budget: Annotated[Mapping[str, Any], BUDGET] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where results are kept, and whether earlier ones are continued."""

    store: Annotated[
        str,
        Parameter(
            "Where results are kept: a path, a database URL, or a saved block such as result-store/team. Empty: the "
            "environment variable SCALESCOPE_STORE, or else a file in the user's data folder. An address with a "
            "password belongs in that variable or in a block, since Prefect shows what a flow was called with.",
            metavar="ADDRESS",
        ),
    ] = ""
    fresh: Annotated[bool, Parameter("Begin anew, even where a run can be continued.", title="Fresh run")] = False


@dataclass(frozen=True, kw_only=True)
class Reported(Storage):
    """The same, with a report."""

    report: Annotated[
        str,
        Parameter(
            "Where to write the result as one HTML file as well: a path, or an address like s3://bucket/report.html. "
            "Empty: nowhere. In a deployment a relative path is one beside the records of the run.",
            title="Report file",
            metavar="FILE",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class RunParameters(Reported, Execution, SweepParameters):
    """All parameters of a run of a sweep."""
