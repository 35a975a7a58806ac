"""What the scheduler and a worker are charged for a task."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalescope.errors import UsageError
from scalescope.model.cluster import SimulatedSpec

REFERENCE_SCHEDULER_US = 60.0
REFERENCE_WORKER_US = 1000.0


@dataclass(frozen=True)
class Calibration:
    """Costs of a task outside its own function.

    Attributes:
        scheduler_us: Scheduler CPU per task transition, in microseconds.
        worker_us: Worker CPU per task, in microseconds.
        source: `reference`, `host` (measured here by `scalescope calibrate`), or `given` in the specification.
    """

    scheduler_us: float = REFERENCE_SCHEDULER_US
    worker_us: float = REFERENCE_WORKER_US
    source: str = "reference"

    def to_mapping(self) -> dict[str, Any]:
        """As a result shows it."""
        return {
            "scheduler_us_per_transition": self.scheduler_us,
            "worker_us_per_task": self.worker_us,
            "calibration": self.source,
        }

    @classmethod
    def choose(cls, spec: SimulatedSpec) -> Calibration:
        """What the specification gives, else this host's, else the built-in reference."""
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
        """This host's calibration, or None.

        Raises:
            UsageError: The file is there and cannot be read.
        """
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
        """Keep it for this host."""
        path = calibration_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))
        return path


def calibration_file() -> Path:
    """Where this host's calibration is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "scalescope" / "calibration.json"
