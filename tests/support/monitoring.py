"""What dashboard and alerts of infra/kubernetes/monitoring ask Prometheus for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "infra/kubernetes/monitoring"
_METRIC = re.compile(r"\b(?:dask_(?!org_)|process_|python_)\w+")
_TYPE = re.compile(r"^# TYPE (\S+) ", re.MULTILINE)


def expressions() -> list[str]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    alerts = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    rules = [rule for group in alerts["spec"]["groups"] for rule in group["rules"]]
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in rules)]


def used() -> set[str]:
    """Names of metrics of Dask and of its processes."""
    return set(_METRIC.findall(" ".join(expressions())))


def exported(text: str) -> set[str]:
    """Names of metrics in an answer to /metrics."""
    return set(_TYPE.findall(text))
