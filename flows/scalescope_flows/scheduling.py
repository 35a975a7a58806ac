"""Checks that schedules fire, because a failing scheduler is only reported in the log of its server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from importlib import import_module
from importlib.metadata import version
from typing import Any

from scalescope.errors import InfrastructureError

NAME = "scalescope-doctor"
TIMEOUT_S = 120.0
# Runs that a schedule has within this time must exist on the server, which creates them 100 days ahead by default
HORIZON = timedelta(days=30)


def check(*, configured: bool) -> str:
    """Try the installed scheduler, and whether the configured server creates runs; say what works."""
    try_scheduler()
    if not configured:
        return "creates runs here (no Prefect server is configured)"
    if names := overdue():
        raise InfrastructureError(
            f"schedules of {', '.join(names)} do not fire: they have no scheduled run",
            where=_api(),
            cause="the server's scheduler does not run, or its packages differ from those here",
            next_step="look for errors of `scheduler` in the server's log; start the server in this environment, "
            "without --no-services. A new deployment gets its runs within a minute.",
        )
    return "creates runs, here and on the configured server"


def try_scheduler() -> None:
    """Let the installed scheduler create a run of a schedule, in a separate process with a new database."""
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "PREFECT_HOME": folder,
            "PREFECT_PROFILES_PATH": f"{folder}/profiles.toml",
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
            "PREFECT_LOGGING_LEVEL": "ERROR",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        try:
            subprocess.run(
                [sys.executable, "-P", __file__],
                cwd=folder,  # a folder without a project's settings file
                env={**kept, **own},
                timeout=TIMEOUT_S,
                check=True,
                capture_output=True,
                text=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise InfrastructureError(
                "Prefect's scheduler fails with these packages: a server that has them starts no scheduled run",
                where=f"prefect {version('prefect')} and sqlalchemy {version('sqlalchemy')} in {sys.prefix}",
                cause=_cause(error),
                next_step='pip install "sqlalchemy<2.1", or install with -c constraints.txt; then restart the server',
            ) from error


def _cause(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no result within {TIMEOUT_S:g} s"
    lines = [line.strip() for line in str(error.stderr).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "it printed nothing")


def overdue() -> list[str]:
    """Deployments of the configured server, as FLOW/NAME, that have an active schedule but no coming run."""
    import httpx
    from prefect.exceptions import PrefectException

    try:
        return asyncio.run(_overdue())
    except (httpx.HTTPError, PrefectException) as error:
        raise InfrastructureError(
            "the Prefect server does not answer",
            where=_api(),
            cause=f"{type(error).__name__}: {error}",
            next_step="start it (`prefect server start`), or correct PREFECT_API_URL and PREFECT_API_AUTH_STRING",
        ) from error


def _api() -> str:
    from prefect.settings import PREFECT_API_URL

    return str(PREFECT_API_URL.value())


async def _overdue() -> list[str]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.server.schemas.schedules import SCHEDULE_TYPES
    from prefect.types._datetime import now
    from pydantic import TypeAdapter

    schedules: TypeAdapter[SCHEDULE_TYPES] = TypeAdapter(SCHEDULE_TYPES)
    start = now("UTC")
    wanted = {"state": {"type": {"any_": ["SCHEDULED"]}}, "next_scheduled_start_time": {"after_": start}}
    ahead = FlowRunFilter.model_validate(wanted)

    async def due(deployment: DeploymentResponse) -> bool:
        for each in deployment.schedules:
            schedule = schedules.validate_python(each.schedule.model_dump())
            if each.active and await schedule.get_dates(1, start, start + HORIZON):
                return True
        return False

    found = []
    async with get_client() as client:
        offset = 0
        while page := await client.read_deployments(offset=offset):
            offset += len(page)
            for deployment in page:
                if deployment.paused or not await due(deployment):
                    continue
                this = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
                if not await client.read_flow_runs(flow_run_filter=ahead, deployment_filter=this, limit=1):
                    flow = await client.read_flow(deployment.flow_id)
                    found.append(f"{flow.name}/{deployment.name}")
    return sorted(found)


async def _schedule() -> None:
    from prefect.server.database import provide_database_interface
    from prefect.server.schemas.core import Deployment, DeploymentSchedule, Flow
    from prefect.server.schemas.schedules import CronSchedule
    from prefect.server.services.scheduler import schedule_deployments

    models: Any = import_module("prefect.server.models")  # Any: its coroutines have wrong types
    database = provide_database_interface()
    metadata = database.Base.metadata
    artifacts = metadata.tables["artifact"].indexes
    artifacts.difference_update([index for index in artifacts if index.name == "ix_artifact__key"])  # declared twice
    async with (await database.engine()).begin() as connection:
        await connection.run_sync(metadata.create_all)  # the migrations would take 11 s
    async with database.session_context(begin_transaction=True) as session:
        flow = await models.flows.create_flow(session=session, flow=Flow(name=NAME))
        daily = DeploymentSchedule(active=True, schedule=CronSchedule(cron="0 2 * * *"))
        wanted = Deployment(name=NAME, flow_id=flow.id, schedules=[daily])
        await models.deployments.create_deployment(session=session, deployment=wanted)
    await schedule_deployments()
    async with database.session_context() as session:
        if not await models.flow_runs.count_flow_runs(session=session):
            raise RuntimeError("Error: the scheduler created no run, and gave no reason")


if __name__ == "__main__":
    asyncio.run(_schedule())
