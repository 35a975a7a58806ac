"""Prefect accepts our automation files; no server is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from prefect.events.schemas.automations import AutomationCore
from prefect.server.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.events import Resource

from scalescope.nightly.alerts import CONFIRMED
from scalescope.nightly.missing_nights import MEASURED

FILES = sorted((Path(__file__).parents[2] / "deployments/automations").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_prefect_accepts_each_automation_file(path: Path) -> None:
    for each in yaml.safe_load(path.read_text()):
        assert AutomationCore.model_validate(each).actions


@pytest.mark.parametrize(
    ("file", "event", "resource"),
    [
        ("regressions", CONFIRMED, "scalescope.alert.a1b2c3"),
        ("missing-nights", MEASURED, "scalescope.history.my nights"),
    ],
)
def test_an_automation_is_triggered_by_our_event(file: str, event: str, resource: str) -> None:
    [each] = yaml.safe_load(next(path for path in FILES if path.stem == file).read_text())
    trigger = EventTrigger(**{name: value for name, value in each["trigger"].items() if name != "type"})
    assert trigger.expects(event)
    assert trigger.covers_resources(Resource({"prefect.resource.id": resource}), [])
    assert not trigger.covers_resources(Resource({"prefect.resource.id": "prefect.flow-run.1"}), [])
