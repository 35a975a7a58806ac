"""What a comparison of B with A may be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.studies.parameters import AtPoint, StudyParameters, workload_names

FEWEST = 7
"""Pairs below which nothing is decided: with 5, the sign-flip test cannot reject at all; with 7, a difference of 5 %
under noise of 2.2 % per trial is found in 93 % of runs."""

SmallestEffect = Annotated[
    float,
    Parameter("Differences up to it are called the same, as a share: 0.03 is 3 %.", minimum=0, maximum=0.99),
]
MaxPairs = Annotated[int, Parameter("Valid pairs after which it is given up.", minimum=FEWEST, maximum=1000)]


@dataclass(frozen=True, kw_only=True)
class ComparisonParameters(StudyParameters, AtPoint):
    """Compare B with A in interleaved pairs of trials, until the answer is clear."""

    workloads: Annotated[
        list[str],
        Parameter(
            "What to run, as for a sweep. Each of several is compared for itself, and all are judged together. Empty: "
            "the workload of the run.",
            option=("--workload", "-w"),
            metavar="NAME",
            syntax="names",
            suggestions=workload_names,
        ),
    ] = field(default_factory=list)
    a: Annotated[
        Mapping[str, Any],
        Parameter(
            "Settings for A only: values of axes, such as environment, cluster, npartitions or a Dask configuration "
            "key.",
            title="A",
            option=("--a",),
            metavar="NAME=VALUE",
            syntax="values",
            examples=({"partition_size": 1},),
        ),
    ] = field(default_factory=dict)
    b: Annotated[
        Mapping[str, Any],
        Parameter(
            "Settings for B only.",
            title="B",
            option=("--b",),
            metavar="NAME=VALUE",
            syntax="values",
            examples=({"partition_size": 4},),
        ),
    ] = field(default_factory=dict)
    metric: Annotated[
        str,
        Parameter(
            "What is compared: makespan_s, efficiency, tasks, ..., or a term as workers_used / workers.",
            option=("--metric", "-m"),
            metavar="NUMBER",
        ),
    ] = "makespan_s"
    smallest_effect: SmallestEffect = 0.03  # what 20 pairs can tell from none where trials spread by 2 to 3 %
    max_pairs: MaxPairs = 20
