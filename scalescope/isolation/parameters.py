"""Parameters of an isolation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.studies.parameters import MINUTES, OTHERS_CODE, RUN


@dataclass(frozen=True, kw_only=True)
class IsolationParameters:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope."""

    run: Annotated[
        str, replace(RUN, help="A finished run: an id, the start of an id, or `latest`.", metavar="[RUN | FILE.yaml]")
    ] = "latest"
    others_code: Annotated[bool, OTHERS_CODE] = False
    sweep: Annotated[
        Mapping[str, Any],
        Parameter(
            "A sweep to run first, whose run is then isolated.",
            title="Sweep to run first",
            syntax="sweep",
            examples=({"workload": "beam-pardo", "axes": {"workers": [10, 200], "items_per_worker": [1]}},),
        ),
    ] = field(default_factory=dict)
    finding: Annotated[
        str,
        Parameter("Code of the finding to isolate. Empty: the first finding.", names="finding", metavar="CODE"),
    ] = ""
    metric: Annotated[
        str,
        Parameter(
            "A condition in place of the finding, such as workers_used < 0.5 * workers, or efficiency < 0.6.",
            title="Condition",
            metavar="COMPARISON",
        ),
    ] = ""
    max_trials: Annotated[int, Parameter("Most trials to run.", title="Most trials", minimum=1, maximum=10_000)] = 80
    minutes: Annotated[float, MINUTES] = 30.0
    folder: Annotated[
        str,
        Parameter(
            "Folder or address for notebook, reproducer, bug report, report and result. In a deployment, a relative "
            "path starts at the folder with the run's records.",
            metavar="FOLDER",
        ),
    ] = "isolated"
