"""Costs of a task to the scheduler and a worker, in virtual time."""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.errors import UsageError
from scalescope.owner import make_folder, user_folder

REFERENCE_SCHEDULER_US = 90.0
REFERENCE_WORKER_US = 950.0


@dataclass(frozen=True)
class Calibration:
    """Costs of a task outside its own function."""

    scheduler_us: float = REFERENCE_SCHEDULER_US  # CPU per task transition, in microseconds
    worker_us: float = REFERENCE_WORKER_US  # CPU per task, in microseconds
    source: str = "reference"  # or `host` (`scalescope calibrate`) or `given` (the specification)

    def to_mapping(self) -> dict[str, Any]:
        return {
            "scheduler_us_per_transition": self.scheduler_us,
            "worker_us_per_task": self.worker_us,
            "calibration": self.source,
        }

    @classmethod
    def choose(cls, spec: SimulatedSpec) -> Calibration:
        """The costs in the specification, else this host's calibration, else the built-in reference."""
        base = cls.load() or cls()
        if spec.scheduler_us is None and spec.worker_us is None:
            return base
        return cls(
            base.scheduler_us if spec.scheduler_us is None else spec.scheduler_us,
            base.worker_us if spec.worker_us is None else spec.worker_us,
            "given",
        )

    @classmethod
    def load(cls) -> Calibration | None:
        """This host's calibration, or None; `UsageError` if its file cannot be read."""
        path = calibration_file()
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                "this host's calibration cannot be read", where=str(path), cause=str(error), next_step="delete the file"
            ) from error

    def save(self) -> Path:
        path = calibration_file()
        make_folder(path.parent)
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self)))
        return path


def calibration_file() -> Path:
    return user_folder("XDG_CACHE_HOME", ".cache") / "calibration.json"


def measure(workers: int = 32, tasks: int = 1000, rounds: int = 3) -> Calibration:
    """Measure the CPU seconds that a real scheduler and real workers of this host spend on an empty task."""
    import distributed

    from scalescope.clusters.light.cluster import LightCluster
    from scalescope.clusters.light.spec import LightSpec

    cluster = LightCluster(LightSpec(hosts=2, check_limit=False))
    samples: list[tuple[float, float]] = []
    try:
        cluster.open()
        cluster.scale(workers, 1)
        with cluster.client() as client, client.as_current():
            for _ in range(rounds + 1):
                before = _spent(client)
                distributed.wait(client.map(abs, range(tasks), pure=False))
                after = _spent(client)
                transitions, scheduler_s, worker_s = (late - early for late, early in zip(after, before, strict=True))
                samples.append((scheduler_s / transitions, worker_s / tasks))
    finally:
        cluster.close()
    scheduler, worker = (statistics.median(column) for column in zip(*samples[1:], strict=True))
    return Calibration(round(scheduler * 1e6, 1), round(worker * 1e6, 1), "host")


def _spent(client: Any) -> tuple[float, float, float]:
    """Totals so far: task transitions, CPU seconds of the scheduler, CPU seconds of all worker hosts."""
    transitions, scheduler_s = client.run_on_scheduler(_scheduler_spent)
    hosts = dict(client.run(_process_spent).values())
    return float(transitions), scheduler_s, sum(hosts.values())


def _scheduler_spent(dask_scheduler: Any) -> tuple[int, float]:
    return dask_scheduler.transition_counter, time.process_time()


def _process_spent() -> tuple[int, float]:
    return os.getpid(), time.process_time()
