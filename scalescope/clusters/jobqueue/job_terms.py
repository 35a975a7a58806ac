"""Terms of a job, as requested and as the batch system has them: plugins, defaults and administrators change them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scalescope.model.words import duration

MINUTE_S = 60  # seconds: batch systems round a time limit up to a minute


@dataclass(frozen=True)
class JobTerms:
    """Terms requested for a job, or terms that it got. None or empty: not requested, or not told by the system."""

    time_s: float | None = None
    memory_mb: float | None = None
    partition: str = ""  # partition or queue, or several, separated by commas
    account: str = ""
    qos: str = ""
    nodes: int | None = None
    cores: int | None = None

    def changes(self, given: JobTerms) -> dict[str, str]:
        """How the terms `given` by the system differ from these requested ones: phrases by name of the field."""
        found = {}
        if self.time_s and given.time_s and not 0 <= given.time_s - self.time_s < MINUTE_S:
            found["time_s"] = f"a time limit of {_time(given.time_s)} in place of {_time(self.time_s)}"
        if self.memory_mb and given.memory_mb and abs(given.memory_mb - self.memory_mb) >= 1:
            found["memory_mb"] = f"{given.memory_mb:g} MB of memory in place of {self.memory_mb:g} MB"
        for name in ("nodes", "cores"):
            wanted, count = getattr(self, name), getattr(given, name)
            if wanted and count and count != wanted:
                found[name] = f"{count} {name} in place of {wanted}"
        for name, title in (("partition", "partition"), ("account", "account"), ("qos", "QOS")):
            asked, has = getattr(self, name).lower(), getattr(given, name).lower()
            if asked and has and not set(has.split(",")) <= set(asked.split(",")):
                found[name] = f"{title} {getattr(given, name)} in place of {getattr(self, name)}"
        return found


NO_TERMS = JobTerms()


def in_words(changes: dict[str, str], system: str) -> str:
    """A sentence about what a system changed; empty if it changed nothing."""
    return f"{system} gave the jobs {', '.join(changes.values())}" if changes else ""


def _time(seconds: float) -> str:
    return "infinity" if math.isinf(seconds) else duration(seconds)


def clock_s(text: str) -> float:
    """Seconds of `3600` or `1:00:00`."""
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part or 0)
    return total
