"""Dask's own performance report and statistical profile, on demand, each with a time limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client

from scalescope.capture import remote
from scalescope.capture.shipping import Shipment
from scalescope.errors import CaptureError

REPORT_TASKS = 100_000
"""Beyond this the report shows only the newest tasks, takes a minute on the scheduler's loop, and 90 MB."""

REPORT_TIMEOUT_S, PROFILE_TIMEOUT_S = 60.0, 30.0
"""Limits of what the scheduler does for them."""

T = TypeVar("T")


class OnDemand:
    """The performance report and the profile of one trial, as far as they were asked for; no failure is raised.

    While the report is attached the scheduler keeps its task stream, which costs every task some microseconds.

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
        self.performance_report = performance_report
        self.profile = profile
        self.files: dict[str, str] = {}
        self.warnings: list[str] = []
        self._attached: dict[str, Any] | None = None

    def begin(self) -> None:
        """When the trial begins: have the scheduler keep what the report shows."""
        if self.performance_report:
            try:
                self._attached = self._run("attach_task_stream")
            except CaptureError as error:
                self.warnings.append(error.what)

    def end(self, *, start: float, tasks: int) -> None:
        """When the trial has ended.

        Args:
            start: When it began, in seconds since the epoch on the scheduler's clock.
            tasks: Tasks of the trial.
        """
        attached = self._attached
        if attached is not None:
            self._write("performance_report", ".performance-report.html", lambda: self._report(start, tasks, attached))
        if self.profile:
            self._write("profile", ".profile.json", lambda: self._profile(start))

    def _write(self, name: str, suffix: str, render: Callable[[], str]) -> None:
        path = self.spool_path.with_suffix(suffix)
        try:
            path.write_text(render(), encoding="utf-8")
        except (CaptureError, OSError) as error:
            self.warnings.append(error.what if isinstance(error, CaptureError) else f"no {name}: {error}")
        else:
            self.files[name] = str(path)

    def _report(self, start: float, tasks: int, attached: dict[str, Any]) -> str:
        """Dask's `performance_report` as HTML; detaches what was not there before."""
        try:
            if tasks > REPORT_TASKS:
                raise CaptureError(
                    f"no performance report of {tasks:,} tasks: beyond {REPORT_TASKS:,} Dask shows only the newest, and"
                    " blocks the scheduler for a minute; the task record has all of them"
                )
            render = partial(
                self.client.scheduler.performance_report,
                start=start,
                last_count=attached["last_count"],
                code="",
                mode=None,
            )
            return str(_limited(self.client, render, REPORT_TIMEOUT_S, "performance report"))
        finally:
            if not attached["before"]:
                self._run("detach_task_stream")

    def _profile(self, start: float) -> str:
        """The statistical profile of all workers' threads, as `distributed.profile` has it."""
        fetch = partial(self.client.scheduler.profile, start=start)
        state = _limited(self.client, fetch, PROFILE_TIMEOUT_S, "profile")
        if not state.get("count"):
            raise CaptureError("the profile is empty: the trial was too short, or workers take none on this cluster")
        return json.dumps(state, default=str)

    def _run(self, function: str) -> Any:
        call = partial(self.client._run_on_scheduler, Shipment(remote, function))
        return _limited(self.client, call, REPORT_TIMEOUT_S, "performance report")


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
