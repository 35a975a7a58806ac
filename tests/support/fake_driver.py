"""A driver that only pretends, so that flows and engine can be tested in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scalescope.driver.process import TrialOutcome
from scalescope.errors import ClusterError, DriverError
from scalescope.model import records, spool
from scalescope.model.cluster import ClusterSpec
from scalescope.model.sweep import PlannedTrial
from scalescope.model.trial import SILENT, STOOD_STILL, TrialState
from scalescope.run import orchestrator_load

STANDS = ("stand still", "go silent")  # the process of a trial, or the control plane of its cluster


@dataclass
class FakeDrivers:
    """Replaces the class `Driver`; there are no processes, pipes, clusters or recording."""

    # By the number of earlier trials over all drivers: `die`, `gone`, `fail`, `invalid`, one of `STANDS`, `nothing`, an
    # exception to raise, or a function of the driver that returns one of these. Default: a second on every worker.
    script: dict[int, Any] = field(default_factory=dict)
    refusals: list[Exception] = field(default_factory=list)  # raised by the first starts of a driver
    limit: dict[str, Any] | None = None  # of emulation, as a fact of the cluster
    submitted: dict[str, str] = field(default_factory=dict)  # further facts of the cluster
    # Workers that a trial uses, and its seconds:
    measures: Callable[[PlannedTrial], tuple[int, float]] = lambda planned: (planned.point.workers, 1.0)
    started: list[FakeDriver] = field(default_factory=list)
    begun: list[PlannedTrial] = field(default_factory=list)

    def start(self, spec: Any, *, seed: int, folder: Path, run: str, python: str, on_progress: Any) -> FakeDriver:
        if self.refusals:
            raise self.refusals.pop(0)
        on_progress("opening the cluster")
        driver = FakeDriver(self, spec, folder, python)
        self.started.append(driver)
        return driver


class FakeDriver:
    """A driver of `FakeDrivers`."""

    def __init__(self, drivers: FakeDrivers, spec: Any, folder: Path, python: str) -> None:
        self.drivers = drivers
        self.python = python
        self.folder = folder
        self.pid = 2**22 + len(drivers.started)  # of no process
        self.facts = {"kind": spec.kind, "shows": "nothing", "cannot_show": "anything", "limit": drivers.limit}
        self.facts |= drivers.submitted
        self.host = {"hostname": "fake"}
        self.packages = {"fake": "1"}
        self.alive = True
        self.closed = 0
        self.cores = orchestrator_load.cores()

    def run(self, planned: PlannedTrial, workload: str, *, timeout_s: float) -> TrialOutcome:
        assert self.alive
        number = len(self.drivers.begun)
        self.drivers.begun.append(planned)
        what = self.drivers.script.get(number, "measure")
        if callable(what):
            what = what(self)
        if isinstance(what, BaseException):
            raise what
        if what == "gone":
            self.alive = False
            raise DriverError("the driver cannot run another trial")
        folder = self.folder / f"{planned.key}-{number}"
        folder.mkdir()
        states = {**dict.fromkeys(("die", "invalid", *STANDS), TrialState.INVALID), "fail": TrialState.FAILED}
        state = states.get(what, TrialState.VALID)
        reason = "" if state is TrialState.VALID else f"because it should {what}"
        self.alive = what != "die"
        if what in ("measure", "invalid", *STANDS):
            write_records(folder / "records.spool", *self.drivers.measures(planned))
        return TrialOutcome(
            state=state,
            reason=reason,
            started_at="2026-01-01T00:00:00+00:00",
            real_s=0.1,
            elapsed_s=None if what in ("die", "fail") else 1.0,
            warnings=(),
            facts={"packages": "digest", "host": {"busy": 0.5}}
            | {"cluster": {"scaled": True} | ({SILENT: reason} if what == "go silent" else {})}
            | ({STOOD_STILL: reason} if what == "stand still" else {}),
            spool=folder,
            result={"items": 1} if what == "measure" else None,
            error={"type": "ValueError", "message": "no", "traceback": ""} if what == "fail" else None,
        )

    def close(self, timeout_s: float = 0) -> None:
        self.closed += 1
        self.alive = False


def write_records(path: Path, workers: int, seconds: float) -> None:
    addresses = [f"tcp://127.0.0.1:{number}" for number in range(workers)]
    began, ended = 100.0, 100.0 + seconds
    tasks = [
        {"key": f"sleep-{number}", "prefix": "sleep", "group": "sleep", "worker": address, "span": seconds}
        | {"runnable": began, "assigned": began, "start": began, "stop": ended, "done": ended}
        for number, address in enumerate(addresses)
    ]
    members = [{"worker": each, "name": each, "host": "here", "nthreads": 1, "joined": 1.0} for each in addresses]
    with path.open("wb") as stream:
        spool.write_chunk(stream, "tasks", records.from_rows("tasks", tasks))
        spool.write_chunk(stream, "workers", records.from_rows("workers", members))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDrivers:
    """The engine starts these drivers."""
    drivers = FakeDrivers()
    monkeypatch.setattr("scalescope.run.drivers.Driver", drivers)
    monkeypatch.setattr("scalescope.run.runner.BACKOFF_S", 0.0)
    monkeypatch.setattr("scalescope.clusters.jobqueue.slurm_spec.SlurmSpec.check_room", ClusterSpec.check_room)
    return drivers


@pytest.fixture
def refusal() -> Exception:
    return ClusterError("no cluster today")


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The address of a store that does not exist yet."""
    return str(tmp_path / "results.db")
