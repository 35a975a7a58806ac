"""The flow `nightly`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.running import run_nightly
from scalescope.run.parameters import Reported
from scalescope.studies.running import StudyResult
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


def _name(given: Mapping[str, Any]) -> str:
    return f"night of {given.get('history') or NightlyParameters().history}"


@declared_flow(NightlyParameters, Reported, name="nightly", flow_run_name=_name)
def nightly(given: dict[str, Any]) -> StudyResult:
    """Run a suite of workloads, and say which got worse since earlier nights, by how much, and because of what.

    A stopped night (even by SIGKILL) continues when it is started again with the same parameters within 12 hours.
    """
    return run_nightly(given, TaskRunner())
