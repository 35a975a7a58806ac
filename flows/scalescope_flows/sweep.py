"""The flow `scale-sweep`."""

from __future__ import annotations

from typing import Any

from scalescope.run import run_names
from scalescope.run.parameters import RunParameters
from scalescope.run.sweep import SweepResult, run_sweep
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


@declared_flow(RunParameters, name="scale-sweep", flow_run_name=run_names.sweep)
def scale_sweep(given: dict[str, Any]) -> SweepResult:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    A stopped sweep (even by SIGKILL) continues when it is started again with the same parameters.
    """
    return run_sweep(given, TaskRunner())
