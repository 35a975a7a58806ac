"""Parameters of a search for thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.sweep import AXES_SCHEMA
from scalescope.studies.parameters import METRIC, OneWorkload, StudyParameters

MaxPoints = Annotated[
    int, Parameter("Most values of the axis to measure.", title="Most values", minimum=2, maximum=10_000)
]
MaxRepeats = Annotated[
    int,
    Parameter("Most trials of one value, if trials differ.", title="Most trials of a value", minimum=1, maximum=1000),
]
MinJump = Annotated[
    float,
    Parameter(
        "Smallest jump worth naming, as a share: 0.05 is 5 %.",
        title="Smallest jump, as a share",
        minimum=0.001,
        maximum=0.999,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ThresholdParameters(StudyParameters, OneWorkload):
    """Find the exact values of an axis at which a metric jumps, with few trials instead of a grid."""

    axes: Annotated[
        Mapping[str, Any],
        Parameter(
            "The axis to search with its range, such as 50..400 or 0..1000:10; other axes with one value each.",
            option=("--axis", "-a"),
            metavar="NAME=VALUES",
            syntax="axes",
            examples=({"items": "50..400", "workers": 300},),
            schema=AXES_SCHEMA,
        ),
    ] = field(default_factory=dict)
    metric: Annotated[str, METRIC] = "tasks"
    max_points: MaxPoints = 40
    max_repeats: MaxRepeats = 5
    # Smaller jumps mean little: counts change by whole tasks, and from twenty on, one task more is at most 5 %.
    min_jump: MinJump = 0.05
