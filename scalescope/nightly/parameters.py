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
    """Run a suite of workloads, and say which got worse since earlier nights, by how much, and why."""

    history: Annotated[
        str, Parameter("Name of the history. Nights are compared with earlier nights of the same history.")
    ] = "nightly"
    workloads: Annotated[
        list[str],
        replace(
            WORKLOAD,
            help="Workloads of the suite by name, or workloads as for a sweep. Empty: the whole suite.",
            names="",
            syntax="names",
            examples=(["bag-map", "/shared/my_job.py:run"],),
        ),
    ] = field(default_factory=list)
    small: Annotated[bool, Parameter("Run the suite at sizes for two cores: each workload takes seconds.")] = False
    clusters: Annotated[
        list[Any],
        Parameter(
            "Clusters to run on: kinds, saved blocks, or mappings with kind and fields. Each workload of the suite "
            "runs only on the kinds that suit it.",
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
            "Sizes of every workload: values for each axis, as for a sweep.",
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
            "Software environment, as for a sweep. Requirements are resolved anew each night, and the result is kept. "
            "Empty: the environment that Scalescope runs in.",
            option=("--environment", "-e"),
            metavar="REQUIREMENTS",
            examples=("dask[distributed] xarray",),
        ),
    ] = ""
    pinned: Annotated[
        bool, Parameter("Run with the same releases as the last night, instead of resolving requirements anew.")
    ] = False
    rounds: Annotated[
        int,
        Parameter(
            "Number of times the suite is run, each time on new clusters. Clusters in virtual time run once.",
            minimum=1,
            maximum=100,
        ),
    ] = 3
    metric: Annotated[str, replace(METRIC, help="Metric to compare: makespan_s, work_s, efficiency, ...")] = (
        "makespan_s"
    )
    smallest_effect: Annotated[
        float, replace(SMALLEST_EFFECT, help="Ignore changes up to this share: 0.05 is 5 %.")
    ] = 0.05
    max_pairs: MaxPairs = 20
    minutes: Annotated[
        float,
        replace(
            MINUTES,
            help="Minutes after which no further rerun begins. The next night makes the rest.",
            title="Time limit of reruns, minutes",
        ),
    ] = 60.0
    budget: Annotated[
        Mapping[str, Any],
        replace(
            BUDGET,
            help="Limits of what the night may cost: core_hours, hours, or money, which needs a price table (the "
            "environment variable SCALESCOPE_PRICES names it). What does not fit runs first in the next night.",
        ),
    ] = field(default_factory=dict)
    site: Annotated[
        str,
        Parameter(
            "Folder or address to write the pages of the history to. Empty: none are written. In a deployment, a "
            "relative path is a folder beside the records of the runs.",
            title="Pages of the history",
            metavar="FOLDER",
            examples=("s3://bucket/history",),
        ),
    ] = ""
    issues: Annotated[
        str,
        Parameter(
            "Where to open an issue for each alert: github:OWNER/REPO, or a folder for Markdown files. Empty: none are "
            "opened. The token for GitHub is in the environment variable SCALESCOPE_GITHUB_TOKEN.",
            metavar="TRACKER",
            examples=("github:OWNER/REPO",),
        ),
    ] = ""
    seed: Seed = 0
    trial_timeout_s: TrialTimeout = TRIAL_TIMEOUT_S
