"""Findings: what is wrong, by which evidence, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from scalescope.errors import printable
from scalescope.model.fields import Scalar
from scalescope.model.mapping import Mapped
from scalescope.model.words import number

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
class Gain(Mapped):
    """What a remedy would bring, at the point of which the finding speaks, by the time of the workload's call.

    Attributes:
        now_s: Seconds as measured.
        predicted_s: Seconds without what is lost.
        change: Values of axes (parameters, threads, configuration) that are the remedy; none where people must act.
        measured_s: Seconds with this change; None where it was not run.
    """

    now_s: float
    predicted_s: float
    change: Mapping[str, Scalar] = field(default_factory=dict)
    measured_s: float | None = None

    def __str__(self) -> str:
        """`predicted 2.1 s instead of 16.1 s; measured 2.3 s`."""
        measured = "" if self.measured_s is None else f"; measured {number(self.measured_s)} s"
        return f"predicted {number(self.predicted_s)} s instead of {number(self.now_s)} s{measured}"


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
        points: Ids of the points concerned, that of which the summary speaks first.
        lost_s: Worker time lost to it, in thread-seconds, over the points concerned.
        link: Where to read more.
        gain: What the remedy would bring; None where that cannot be said.
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
    gain: Gain | None = None

    @property
    def fix(self) -> str:
        """The remedy and what it would bring, without a full stop; empty where there is no remedy."""
        return f"{self.remedy} ({self.gain})" if self.remedy and self.gain else self.remedy

    @property
    def line(self) -> str:
        """What is wrong, and the fix if there is one."""
        return f"{self.summary} Fix: {self.fix}." if self.fix else self.summary

    def rank(self) -> tuple[int, float, float]:
        """Sorts findings, the worst first: by severity, then by worker time lost, then by confidence."""
        return self.severity.rank, -self.lost_s, -self.confidence

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", current_code(self.code))  # of a finding that an older version stored
        for name in ("summary", "remedy"):
            object.__setattr__(self, name, printable(getattr(self, name)))  # they name tasks, workers and files


@dataclass(frozen=True)
class Verdict:
    """The one line on what is wrong, and all findings behind it, worst first."""

    line: str
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Verdict:
        """That of findings, at least one, the worst first."""
        return cls(findings[0].line, tuple(findings))

    @property
    def severity(self) -> Severity:
        """Of the worst finding."""
        return self.findings[0].severity if self.findings else Severity.INFO
