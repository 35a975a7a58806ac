"""What a cause is, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Evidence, Finding, Severity

WORTH_A_WORD = 0.10
"""Share of worker time lost below which a cause keeps quiet."""
SEVERE = 0.30
"""Share of worker time lost from which on a cause with a remedy is severe."""

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """What the catalogue says of a code.

    Attributes:
        code: Its name in findings, such as `straggler`.
        title: Three to six words.
        needs: The evidence without which it is not named.
        ruled_out_by: What looks the same and is not it, and how it is told apart.
        remedy: What to change, in general; a finding names the exact option or line.
        link: Where to read more.
    """

    code: str
    title: str
    needs: str
    ruled_out_by: str
    remedy: str
    link: str


@dataclass(frozen=True)
class Cause(Entry):
    """One cause that the records of a single trial can show.

    Attributes:
        find: Looks at one trial. The finding's code is this one's.
    """

    find: Callable[[Observation], Finding | None] = field(repr=False)


def severity_of(share: float) -> Severity:
    """How much a loss of this share of worker time matters, where a remedy is known."""
    return Severity.HIGH if share >= SEVERE else Severity.MEDIUM if share >= WORTH_A_WORD else Severity.LOW


def once(compute: Callable[[Observation], T]) -> Callable[[Observation], T]:
    """Compute something for each trial once, as `functools.cached_property` does: several causes look at it."""
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def computed(observation: Observation) -> T:
        kept: dict[str, Any] = vars(observation)
        if name not in kept:
            kept[name] = compute(observation)
        value: T = kept[name]
        return value

    return computed


__all__ = [
    "SEVERE",
    "WORTH_A_WORD",
    "Cause",
    "Entry",
    "Evidence",
    "Finding",
    "Observation",
    "Severity",
    "once",
    "severity_of",
]
