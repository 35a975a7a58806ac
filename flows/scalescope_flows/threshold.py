"""The flow `find-threshold`."""

from __future__ import annotations

from functools import partial
from typing import Any

from scalescope.model.study import StudyKind
from scalescope.run import run_names
from scalescope.run.parameters import Reported
from scalescope.studies.running import StudyResult, run_study
from scalescope.studies.threshold.parameters import ThresholdParameters
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


@declared_flow(
    ThresholdParameters, Reported, name="find-threshold", flow_run_name=partial(run_names.study, StudyKind.THRESHOLD)
)
def find_threshold(given: dict[str, Any]) -> StudyResult:
    """Find the exact values of an axis at which a metric jumps, with few trials instead of a grid.

    What was stopped continues when it is started again with the same parameters.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be opened, or too many were lost.
        StoreError: Results could not be kept.
    """
    return run_study(StudyKind.THRESHOLD, given, TaskRunner())
