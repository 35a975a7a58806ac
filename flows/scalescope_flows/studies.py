"""The flows of all studies in `STUDIES`, and the flows `nightly`, `isolate` and `fix`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from scalescope.fixing import running as fixing
from scalescope.fixing.parameters import FixParameters
from scalescope.fixing.result import Fix
from scalescope.isolation import running as isolation
from scalescope.isolation.parameters import IsolationParameters
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.running import run_nightly
from scalescope.run import run_names
from scalescope.run.parameters import Reported, Storage
from scalescope.studies import STUDIES
from scalescope.studies.running import StudyResult, run_study
from scalescope_flows.declared import CountedFlow, declared_flow
from scalescope_flows.runner import TaskRunner


def study_flow(kind: str) -> CountedFlow[..., StudyResult]:
    study = STUDIES[kind]

    def run(given: dict[str, Any]) -> StudyResult:
        return run_study(kind, given, TaskRunner())

    run.__name__ = study.function
    run.__doc__ = f"{study.summary}\n\nA stopped study continues when it is started again with the same parameters."
    title = partial(run_names.study, kind)
    return declared_flow(study.parameters, Reported, name=study.command, flow_run_name=title)(run)


FLOWS = {study.function: study_flow(kind) for kind, study in STUDIES.items() if study.plan}


def __getattr__(name: str) -> Any:
    if name in FLOWS:
        return FLOWS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _night(given: Mapping[str, Any]) -> str:
    return f"night of {given.get('history') or NightlyParameters().history}"


@declared_flow(NightlyParameters, Reported, name="nightly", flow_run_name=_night)
def nightly(given: dict[str, Any]) -> StudyResult:
    """Run a suite of workloads, and say which got worse since earlier nights, by how much, and why.

    A stopped night (even by SIGKILL) continues when it is started again with the same parameters within 12 hours.
    """
    return run_nightly(given, TaskRunner())


def _isolation(given: Mapping[str, Any]) -> str:
    return f"isolation of {given.get('metric') or given.get('finding') or 'the first finding'}"


@declared_flow(IsolationParameters, Storage, name="isolate", flow_run_name=_isolation)
def isolate(given: dict[str, Any]) -> isolation.Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Every step is a run in the store: a stopped isolation continues when it is started again with the same parameters.
    """
    return isolation.isolate(given, TaskRunner())


def _fixing(given: Mapping[str, Any]) -> str:
    return f"fix of {given.get('workload') or given.get('script')}"


@declared_flow(FixParameters, name="fix", flow_run_name=_fixing)
def fix(given: dict[str, Any]) -> Fix:
    """Patch a script or a workload where a finding has a remedy, and prove that it is faster and does the same.

    It runs in copies of its folder on the machine of the flow run; the patch is an artifact, and no file is written.
    """
    return fixing.fix_asked(given, TaskRunner())
