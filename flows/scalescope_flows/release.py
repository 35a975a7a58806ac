"""The flow `find-release`."""

from __future__ import annotations

from functools import partial
from typing import Any

from scalescope.model.study import StudyKind
from scalescope.run import run_names
from scalescope.run.parameters import Reported
from scalescope.studies.release.parameters import ReleaseParameters
from scalescope.studies.running import StudyResult, run_study
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


@declared_flow(
    ReleaseParameters, Reported, name="find-release", flow_run_name=partial(run_names.study, StudyKind.RELEASE)
)
def find_release(given: dict[str, Any]) -> StudyResult:
    """Find the release of a package that moved a metric or brought a finding; or the package of two lock files.

    What was stopped continues when it is started again with the same parameters.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be opened, or too many were lost.
        StoreError: Results could not be kept.
    """
    return run_study(StudyKind.RELEASE, given, TaskRunner())
