"""Dask's own performance report and statistical profile, on demand, each with a time limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client

from scalescope.capture import remote
from scalescope.capture.shipping import Shipment
from scalescope.errors import CaptureError

REPORT_TASKS = 100_000
"""Beyond this the report shows only the newest tasks, takes a minute on the scheduler's loop, and 90 MB."""

T = TypeVar("T")


class OnDemand:
    """The performance report and the profile of one trial, as far as they were asked for; no failure is raised.

    Args:
        client: Of the cluster.
        spool_path: They are written beside it, as `.performance-report.html` and `.profile.json`.
        performance_report: Whether to write the report.
        profile: Whether to write the profile.

    Attributes:
        files: What was written.
        warnings: Why something was not.
    """

    def __init__(self, client: Client, spool_path: Path, *, performance_report: bool, profile: bool) -> None:
        self.client = client
        self.spool_path = spool_path
        self.profile = profile
        self.files: dict[str, str] = {}
        self.warnings: list[str] = []
        self.report = PerformanceReport(client) if performance_report else None

    def begin(self) -> None:
        """When the trial begins."""
        if self.report is not None:
            try:
                self.report.attach()
            except CaptureError as error:
                self.warnings.append(error.what)
                self.report = None

    def end(self, *, start: float, tasks: int) -> None:
        """When the trial has ended.

        Args:
            start: When it began, in seconds since the epoch on the scheduler's clock.
            tasks: Tasks of the trial.
        """
        report = self.report
        if report is not None:
            self._write("performance_report", ".performance-report.html", lambda: report.render(start, tasks))
        if self.profile:
            self._write("profile", ".profile.json", lambda: profile_json(self.client, start=start))

    def _write(self, name: str, suffix: str, render: Callable[[], str]) -> None:
        path = self.spool_path.with_suffix(suffix)
        try:
            path.write_text(render(), encoding="utf-8")
        except (CaptureError, OSError) as error:
            self.warnings.append(error.what if isinstance(error, CaptureError) else f"no {name}: {error}")
        else:
            self.files[name] = str(path)


class PerformanceReport:
    """Dask's `performance_report` over one trial.

    While it is attached the scheduler keeps its task stream, which costs every task some microseconds.

    Args:
        client: Of the cluster.
        timeout_s: Limit of rendering, which happens on the scheduler.
    """

    def __init__(self, client: Client, *, timeout_s: float = 60.0) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self.attached_before = False
        self.last_count = 0

    def attach(self) -> None:
        """Have the scheduler keep what the report shows.

        Raises:
            CaptureError: It did not.
        """
        attached = self._run("attach_task_stream")
        self.attached_before, self.last_count = attached["before"], attached["last_count"]

    def render(self, start: float, tasks: int) -> str:
        """The report as HTML; detaches.

        Raises:
            CaptureError: There are too many tasks, the scheduler has no bokeh, or it took too long.
        """
        try:
            if tasks > REPORT_TASKS:
                raise CaptureError(
                    f"no performance report of {tasks:,} tasks: beyond {REPORT_TASKS:,} Dask shows only the newest, and"
                    " blocks the scheduler for a minute; the task record has all of them"
                )

            async def render() -> str:
                scheduler = self.client.scheduler
                html = await scheduler.performance_report(start=start, last_count=self.last_count, code="", mode=None)
                return str(html)

            return _limited(self.client, render, self.timeout_s, "performance report")
        finally:
            if not self.attached_before:
                self._run("detach_task_stream")

    def _run(self, function: str) -> Any:
        async def call() -> Any:
            return await self.client._run_on_scheduler(Shipment(remote, function))

        return _limited(self.client, call, self.timeout_s, "performance report")


def profile_json(client: Client, *, start: float, timeout_s: float = 30.0) -> str:
    """The statistical profile of all workers' threads since `start`, as `distributed.profile` has it.

    Raises:
        CaptureError: It took too long, or the workers take none.
    """

    async def fetch() -> dict[str, Any]:
        state: dict[str, Any] = await client.scheduler.profile(start=start)
        return state

    state = _limited(client, fetch, timeout_s, "profile")
    if not state.get("count"):
        raise CaptureError("the profile is empty: the trial was too short, or workers take none on this cluster")
    return json.dumps(state, default=str)


def _limited(client: Client, call: Callable[[], Awaitable[T]], timeout_s: float, what: str) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(call(), timeout_s)

    try:
        result: T = client.sync(limited)
    except TimeoutError as error:
        raise CaptureError(f"the {what} was not ready within {timeout_s:g} s") from error
    except Exception as error:
        raise CaptureError(f"the {what} could not be made: {type(error).__name__}: {error}") from error
    return result
