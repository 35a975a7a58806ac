"""The check of schedules in `scalescope doctor`; tests/integration has a server whose schedules fire."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule, RRuleSchedule

from scalescope.errors import InfrastructureError
from scalescope_flows import scheduling

FAILS = '''
import sqlalchemy.exc
import sqlalchemy.ext.asyncio

class Session(sqlalchemy.ext.asyncio.AsyncSession):
    """Fails as sqlalchemy 2.1.9 does."""

    async def execute(self, statement, *others, **named):
        if others and "INSERT INTO flow_run" in str(statement):
            raise sqlalchemy.exc.InvalidRequestError("Can't evaluate bulk DML statement; please supply a function")
        return await super().execute(statement, *others, **named)

sqlalchemy.ext.asyncio.AsyncSession = Session
'''


def test_the_scheduler_service_of_the_installed_prefect_can_create_scheduled_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert scheduling.check(configured=False).startswith("creates runs")
    assert list(tmp_path.iterdir()) == []  # no file of the user is touched


@pytest.mark.thorough
def test_a_failing_scheduler_raises_with_cause_and_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAILS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(InfrastructureError, match="starts no scheduled run") as error:
        scheduling.check(configured=False)
    assert "InvalidRequestError: Can't evaluate bulk DML statement" in error.value.cause
    assert 'pip install "sqlalchemy<2.1"' in error.value.next_step


def test_a_server_that_does_not_answer_raises_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}),
        pytest.raises(InfrastructureError, match="does not answer") as error,
    ):
        scheduling.overdue()
    assert "127.0.0.1:9" in error.value.where


def test_schedules_on_a_server_without_a_scheduler_are_named_in_the_error(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Prefect server of the tests runs without a scheduler."""

    @flow(name="sleepless")
    def sleepless() -> None: ...

    nightly, ended = CronSchedule(cron="0 2 * * *"), RRuleSchedule(rrule="FREQ=DAILY;COUNT=1")
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(sleepless)
        for name, active, schedule in [("on", True, nightly), ("off", False, nightly), ("over", True, ended)]:
            schedules = [DeploymentScheduleCreate(active=active, schedule=schedule)]
            client.create_deployment(flow_id, name=name, schedules=schedules)
    monkeypatch.setattr(scheduling, "try_scheduler", lambda: None)
    with pytest.raises(InfrastructureError, match=r"schedules of .*sleepless/on.* do not fire") as error:
        scheduling.check(configured=True)
    assert "sleepless/o" not in str(error.value).replace("sleepless/on", "")
    assert "--no-services" in error.value.next_step
