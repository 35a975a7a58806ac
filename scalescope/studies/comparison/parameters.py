"""Parameters of a comparison of B with A."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.studies.parameters import METRIC, SMALLEST_EFFECT, WORKLOAD, AtPoint, StudyParameters, named

# Fewest pairs for a decision: with 5, the sign-flip test cannot reject at all.
FEWEST = 7

SmallestEffect = Annotated[float, SMALLEST_EFFECT]
MaxPairs = Annotated[
    int,
    Parameter(
        "Most valid pairs. Without a clear answer by then, the result is undecided.",
        title="Most pairs",
        minimum=FEWEST,
        maximum=1000,
    ),
]
Alpha = Annotated[
    float,
    Parameter(
        "Share of comparisons that may find a difference although A and B are equal, over all looks at the pairs.",
        title="Share of false alarms",
        minimum=0.0001,
        maximum=0.5,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ComparisonParameters(StudyParameters, AtPoint):
    """Compare B with A in interleaved pairs of trials, until the answer is clear."""

    workloads: Annotated[
        list[str],
        replace(
            WORKLOAD,
            help="Workloads, as for a sweep. Several are compared one by one and judged together. Empty: the "
            "workload of the run.",
            names="",
            syntax="names",
            examples=(["bag-map", "beam-pardo"],),
        ),
    ] = field(default_factory=list)
    a: Annotated[
        Mapping[str, Any],
        named(
            "Settings for A only: values of axes, such as environment, cluster, or a Dask configuration key.",
            "Settings for A",
            "--a",
            example={"partition_size": 1},
        ),
    ] = field(default_factory=dict)
    b: Annotated[
        Mapping[str, Any], named("Settings for B only.", "Settings for B", "--b", example={"partition_size": 4})
    ] = field(default_factory=dict)
    metric: Annotated[str, METRIC] = "makespan_s"
    # 20 pairs can show a difference of 3 % if trials spread by 2 to 3 %. At 0, only exactly equal pairs are the same.
    smallest_effect: SmallestEffect = 0.03
    max_pairs: MaxPairs = 20
    alpha: Alpha = 0.05
