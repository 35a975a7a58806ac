"""What is known of a recorded block of code, and who takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scalescope.driver.attempt import Attempt


@dataclass(frozen=True)
class Recorded:
    """What is known of a block besides its raw records."""

    attempt: Attempt
    name: str
    address: str  # of the scheduler
    threads: Mapping[str, int]  # of each worker
    started_at: str
    real_s: float

    @classmethod
    def from_mapping(cls, known: Mapping[str, Any]) -> Recorded:
        return cls(**{**known, "attempt": Attempt(**known["attempt"])})


class Recipient(Protocol):
    """Takes what was recorded; the folder of raw records is removed afterwards."""

    def ended(self, recorded: Recorded, spools: Path) -> None: ...
