"""Parameters of a night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.sweep import AXES_SCHEMA, TRIAL_TIMEOUT_S, Seed, TrialTimeout
from scalescope.run.parameters import BUDGET
from scalescope.studies.comparison.parameters import MaxPairs
from scalescope.studies.parameters import METRIC, MINUTES, SMALLEST_EFFECT, WORKLOAD


@dataclass(frozen=True, kw_only=True)
class NightlyParameters:
    """Run a suite of workloads, and say which got worse since earlier nights, by how much, and because of what."""

    history: Annotated[
        str,
        Parameter("Name of the history that this night belongs to: nights are compared with others of the same name."),
    ] = "nightly"
    workloads: Annotated[
        list[str],
        replace(
            WORKLOAD,
            help="What to run, by name or as for a sweep. Empty: the whole suite.",
            names="",
            syntax="names",
            examples=(["bag-map", "my_job.py:run"],),
        ),
    ] = field(default_factory=list)
    small: Annotated[bool, Parameter("Run the suite at the sizes for two cores: seconds for each workload.")] = False
    clusters: Annotated[
        list[Any],
        Parameter(
            "Where to run it: kinds of clusters, saved blocks, or mappings with kind and fields. Workloads of the "
            "suite run where their measurements mean something.",
            option=("--cluster", "-c"),
            metavar="KIND",
            syntax="names",
            examples=(["simulated", {"kind": "local", "memory_limit_mb": 2048}],),
            schema={
                "items": {
                    "anyOf": [
                        {"title": "Kind or saved block", "type": "string"},
                        {"title": "Kind with fields", "type": "object", "allOf": [{"required": ["kind"]}]},
                    ]
                }
            },
        ),
    ] = field(default_factory=lambda: ["simulated"])
    axes: Annotated[
        Mapping[str, Any],
        Parameter(
            "Sizes at which every workload runs: values per axis, as for a sweep.",
            title="Sizes",
            schema=AXES_SCHEMA,
            option=("--axis", "-a"),
            syntax="axes",
            examples=({"workers": [4, 16]},),
        ),
    ] = field(default_factory=lambda: {"workers": [4]})
    environment: Annotated[
        str,
        Parameter(
            "Software to run it with, as for a sweep. Requirements are resolved afresh each night, and what they are "
            "resolved to is kept. Empty: the present environment.",
            option=("--environment", "-e"),
            metavar="REQUIREMENTS",
            examples=("dask[distributed] xarray",),
        ),
    ] = ""
    pinned: Annotated[
        bool, Parameter("Run with the same releases as the last night, in place of resolving requirements afresh.")
    ] = False
    rounds: Annotated[
        int,
        Parameter(
            "Times that the suite is run through, each time on new clusters. Once where nothing is measured in real "
            "time.",
            minimum=1,
            maximum=100,
        ),
    ] = 3
    metric: Annotated[str, replace(METRIC, help="The metric that is compared: makespan_s, work_s, efficiency, ...")] = (
        "makespan_s"
    )
    smallest_effect: Annotated[
        float,
        replace(
            SMALLEST_EFFECT,
            help="Changes up to it are not looked into, as a share: 0.05 is 5 %.",
        ),
    ] = 0.05
    max_pairs: MaxPairs = 20
    minutes: Annotated[
        float,
        replace(
            MINUTES,
            help="Minutes after which no further change is rerun and no cause is searched; the next night goes on.",
            title="Time limit of reruns, minutes",
        ),
    ] = 60.0
    budget: Annotated[
        Mapping[str, Any],
        replace(
            BUDGET,
            help="What measuring may cost: any of core_hours, hours, and money, which needs a price table (the "
            "environment variable SCALESCOPE_PRICES names it). What does not fit comes first in the next night.",
        ),
    ] = field(default_factory=dict)
    site: Annotated[
        str,
        Parameter(
            "Folder or address where the pages of the history are written. Empty: nowhere. In a deployment a relative "
            "path is one beside the records of the runs.",
            title="Pages of the history",
            metavar="FOLDER",
            examples=("s3://bucket/history",),
        ),
    ] = ""
    seed: Seed = 0
    trial_timeout_s: TrialTimeout = TRIAL_TIMEOUT_S
