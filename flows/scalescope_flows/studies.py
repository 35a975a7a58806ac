"""The flows of studies (`find-threshold`, `find-release`, `compare`, `predict`), made from `STUDIES`."""

from __future__ import annotations

from functools import partial
from typing import Any

from scalescope.run import run_names
from scalescope.run.parameters import Reported
from scalescope.studies import STUDIES
from scalescope.studies.running import StudyResult, run_study
from scalescope_flows.declared import CountedFlow, declared_flow
from scalescope_flows.runner import TaskRunner


def study_flow(kind: str) -> CountedFlow[..., StudyResult]:
    study = STUDIES[kind]

    def run(given: dict[str, Any]) -> StudyResult:
        return run_study(kind, given, TaskRunner())

    run.__name__ = study.flow.partition(":")[2]
    run.__doc__ = f"{study.summary}\n\nWhat was stopped continues when it is started again with the same parameters."
    title = partial(run_names.study, kind)
    return declared_flow(study.parameters, Reported, name=study.command, flow_run_name=title)(run)


FLOWS = {study.flow: study_flow(kind) for kind, study in STUDIES.items() if study.plan}


def __getattr__(name: str) -> Any:
    try:
        return FLOWS[f"{__name__}:{name}"]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
