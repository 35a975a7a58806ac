"""The flow `isolate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.isolation import running
from scalescope.isolation.parameters import IsolationParameters
from scalescope.isolation.search import Isolated
from scalescope.run.parameters import Storage
from scalescope_flows.declared import declared_flow
from scalescope_flows.runner import TaskRunner


def _name(given: Mapping[str, Any]) -> str:
    return f"isolation of {given.get('metric') or given.get('finding') or 'the first finding'}"


@declared_flow(IsolationParameters, Storage, name="isolate", flow_run_name=_name)
def isolate(given: dict[str, Any]) -> Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Every step is a run in the store: a stopped isolation continues when it is started again with the same parameters.
    """
    return running.isolate(given, TaskRunner())
