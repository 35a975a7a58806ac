"""The flow `compare`."""

from __future__ import annotations

from functools import partial
from typing import Any

from scalescope.model.study import StudyKind
from scalescope.run import run_names
from scalescope.run.parameters import Reported
from scalescope.studies.comparison.parameters import ComparisonParameters
from scalescope.studies.running import StudyResult, run_study
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


@declared_flow(
    ComparisonParameters, Reported, name="compare", flow_run_name=partial(run_names.study, StudyKind.COMPARISON)
)
def compare(given: dict[str, Any]) -> StudyResult:
    """Compare B with A in interleaved pairs of trials, until the answer is clear.

    What was stopped continues when it is started again with the same parameters.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be opened, or too many were lost.
        StoreError: Results could not be kept.
    """
    return run_study(StudyKind.COMPARISON, given, TaskRunner())
