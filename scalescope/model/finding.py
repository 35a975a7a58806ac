"""Findings: what is wrong, by which evidence, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scalescope.model.mapping import Mapped

RENAMED: Mapping[str, str] = {"poisonous-task": "worker-killing-task"}
"""Codes of findings that older versions used, and what they are called now."""


def current_code(code: str) -> str:
    """The present name of a code of a finding."""
    return RENAMED.get(code, code)


class Severity(StrEnum):
    """How much it matters: `high` makes the command line exit with 1."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return tuple(Severity).index(self)

    @property
    def word(self) -> str:
        """What people call it."""
        return ("Critical", "Warning", "Minor", "Information")[self.rank]


@dataclass(frozen=True)
class Evidence:
    """A number and where it was read.

    Attributes:
        what: In words, with its unit.
        value: The number.
        source: The record, table or rule it comes from.
    """

    what: str
    value: float | int | str
    source: str


@dataclass(frozen=True)
class Finding(Mapped):
    """One cause, as a sentence that a person can act on.

    Attributes:
        code: From a closed set, such as `too-few-partitions`.
        severity: How much it matters.
        summary: One sentence: what is wrong and why.
        remedy: The option or line to change.
        evidence: What it rests on.
        confidence: From 0 to 1.
        points: Ids of the points concerned.
        lost_s: Worker time lost to it, in thread-seconds, over the points concerned.
        link: Where to read more.
    """

    code: str
    severity: Severity
    summary: str
    remedy: str
    evidence: tuple[Evidence, ...] = ()
    confidence: float = 1.0
    points: tuple[str, ...] = ()
    lost_s: float = 0.0
    link: str = ""

    def rank(self) -> tuple[int, float, float]:
        """Sorts findings, the worst first: by severity, then by worker time lost, then by confidence."""
        return self.severity.rank, -self.lost_s, -self.confidence

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", current_code(self.code))  # of a finding that an older version stored


@dataclass(frozen=True)
class Verdict:
    """The one line on what is wrong, and all findings behind it, worst first."""

    line: str
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def severity(self) -> Severity:
        """Of the worst finding."""
        return self.findings[0].severity if self.findings else Severity.INFO
