"""Parameters of a search for the release that changed something."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from scalescope.model.parameters import Parameter
from scalescope.studies.parameters import (
    ENVIRONMENT,
    METRIC,
    RUN,
    SMALLEST_EFFECT,
    AtPoint,
    OneWorkload,
    StudyParameters,
)

NEWEST = "latest"
# Fewest valid pairs that decide a candidate.
FEWEST_PAIRS = 3

MaxEnvironments = Annotated[int, Parameter("Most releases to try.", title="Most releases", minimum=2, maximum=1000)]
MaxPairs = Annotated[
    int,
    Parameter(
        "Most pairs of trials for one release, if trials differ.",
        title="Most pairs",
        minimum=FEWEST_PAIRS,
        maximum=1000,
    ),
]
SmallestEffect = Annotated[
    float, replace(SMALLEST_EFFECT, help="By how much the ends must differ in the metric, as a share: 0.03 is 3 %.")
]


@dataclass(frozen=True, kw_only=True)
class ReleaseParameters(StudyParameters, AtPoint, OneWorkload):
    """Find the release, the commit or (between two lock files) the package that moved a metric or brought a finding."""

    package: Annotated[
        str,
        Parameter(
            "The package whose releases are searched. With its repository (NAME @ git+https://... or NAME @ FOLDER), "
            "also the commits between two of them.",
            metavar="[PACKAGE]",
            syntax="argument",
        ),
    ] = ""
    good: Annotated[
        str,
        Parameter(
            "A release that is known to be good. With a repository also a commit, tag or branch: then only commits "
            "are searched.",
            title="Good release",
            metavar="VERSION",
        ),
    ] = ""
    bad: Annotated[str, Parameter("A later release known to be bad.", title="Bad release", metavar="VERSION")] = NEWEST
    before: Annotated[
        str, Parameter("A lock file known to be good, in place of a package.", title="Good lock file", metavar="FILE")
    ] = ""
    after: Annotated[str, Parameter("A lock file known to be bad.", title="Bad lock file", metavar="FILE")] = ""
    metric: Annotated[
        str,
        replace(
            METRIC,
            help="The number that moved, such as workers_used, or the condition that became true, such as "
            "workers_used < 0.5 * workers.",
            metavar="NUMBER|COMPARISON",
        ),
    ] = ""
    finding: Annotated[
        str, Parameter("The finding that came up, in place of a metric.", names="finding", metavar="CODE")
    ] = ""
    environment: Annotated[
        str,
        replace(
            ENVIRONMENT,
            help="Requirements that are installed together with every release.",
            examples=("dask[distributed]==2024.8.0",),
        ),
    ] = ""
    run: Annotated[str, replace(RUN, metavar="RUN", syntax="")] = ""
    max_environments: MaxEnvironments = 12
    max_pairs: MaxPairs = 20
    smallest_effect: SmallestEffect = 0.03
