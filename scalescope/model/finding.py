"""Findings: what is wrong, by which evidence, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from scalescope.errors import printable
from scalescope.model.fields import Scalar
from scalescope.model.mapping import Mapped
from scalescope.model.words import number, percent

_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+)(?: (?:in )?(?P<function>\S+))?")
# Evidence that a remedy reads: tasks to keep in flight, the factor by which each task must do more, and the number of
# tasks in all graphs that were sent one after another
IN_FLIGHT, TIMES, SENT = "tasks to keep in flight", "factor by which each task should do more", "tasks in them"
BLOCK = "bytes of a block"
META_OF = "meta of "  # begins the name of evidence on what a function returns
ALL_ROUNDS = "tasks of the stage in all rounds"
# Codes of findings about trust in the numbers, not about why a workload is slow.
# A finding of severity `info` limits no trust.
LIMITS_OF_TRUST = frozenset({"host-overloaded", "worker-died", "failed-trials", "invalid-trials", "nothing-measured"})


BEYOND_CORES = "threads for which the host has no core"  # name of evidence that makes a finding of any code limit trust
PROBABLY = "Probably: "  # begins the summary of an unsure first cause, which also names the second cause
UNSURE = 0.6  # confidence below which a first cause is unsure
PERHAPS = "Perhaps: "  # begins the summary of a cause that rests on times made doubtful by a busy host


class Severity(StrEnum):
    """Weight of a finding: `high` makes the command line exit with 1."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return tuple(Severity).index(self)

    @property
    def word(self) -> str:
        return ("Critical", "Warning", "Minor", "Information")[self.rank]


@dataclass(frozen=True)
class Evidence:
    """A number and where it was read."""

    what: str  # the quantity in words, with its unit
    value: float | int | str
    source: str  # record, table or rule from which the number was read


@dataclass(frozen=True)
class Gain(Mapped):
    """Effect of a remedy on the elapsed time at the point that the finding is about."""

    now_s: float  # measured seconds
    predicted_s: float  # predicted seconds, without the loss
    # values of axes (parameters, threads, configuration) that are the remedy, or the cluster's `memory_limit_mb`; empty
    # where people must act
    change: Mapping[str, Scalar] = field(default_factory=dict)
    measured_s: float | None = None  # measured seconds with this change; None if it was not run

    def __str__(self) -> str:
        measured = "" if self.measured_s is None else f"; measured {number(self.measured_s)} s"
        return f"predicted {number(self.predicted_s)} s instead of {number(self.now_s)} s{measured}"


@dataclass(frozen=True)
class Place(Mapped):
    """A line of the user's code."""

    file: str  # name of the file, without its folder
    line: int  # number of the line, from 1
    function: str = ""  # function around the line, or `<module>`; empty if unknown
    name: str = ""  # argument or variable concerned on this line; may be empty

    @classmethod
    def of(cls, text: str, name: str = "") -> Place | None:
        """Read a place as records write it, `my_job.py:14 in run` or `my_job.py:14 run`; None for other texts."""
        found = _LINE.fullmatch(text.strip())
        return cls(found["file"], int(found["line"]), found["function"] or "", name) if found else None


@dataclass(frozen=True)
class Patch(Mapped):
    """A remedy that `scalescope fix` wrote and tried."""

    diff: str  # diff of files, or of settings
    proof: str  # result of the runs with and without the patch; has no full stop
    proven: bool


@dataclass(frozen=True)
class Finding(Mapped):
    """One cause, as a sentence that a person can act on."""

    code: str  # a code of a cause, such as `too-few-partitions`
    severity: Severity
    summary: str  # one sentence: what is wrong and why
    remedy: str  # the option or line to change
    evidence: tuple[Evidence, ...] = ()
    confidence: float = 1.0  # confidence from 0 to 1
    points: tuple[str, ...] = ()  # ids of the points concerned; the summary is about the first
    lost_s: float = 0.0  # thread-seconds lost to this cause at these points
    link: str = ""  # address of a page with more; may be empty
    gain: Gain | None = None  # effect of the remedy; None: unknown
    place: Place | None = None  # line to look at, or to change; None: unknown
    patch: Patch | None = None  # patch that was tried; None: none was

    @property
    def fix(self) -> str:
        """The remedy and its effect, without a full stop; empty if there is no remedy."""
        return f"{self.remedy} ({self.gain})" if self.remedy and self.gain else self.remedy

    @property
    def line(self) -> str:
        return f"{self.summary} Fix: {self.fix}." if self.fix else self.summary

    @property
    def limits_trust(self) -> bool:
        if self.severity is Severity.INFO:
            return False
        return self.code in LIMITS_OF_TRUST or any(each.what == BEYOND_CORES for each in self.evidence)

    def perhaps(self) -> Finding:
        """A copy for times that prove nothing: the summary begins with `PERHAPS`, and severity is at most medium."""
        severity = Severity.MEDIUM if self.severity is Severity.HIGH else self.severity
        return replace(self, severity=severity, summary=PERHAPS + self.summary.removeprefix(PERHAPS))

    def __str__(self) -> str:
        return self.line

    def rank(self) -> tuple[int, float, float]:
        """Sort key, the worst first: severity, worker time lost, confidence."""
        return self.severity.rank, -self.lost_s, -self.confidence

    def __post_init__(self) -> None:
        for name in ("summary", "remedy"):
            object.__setattr__(self, name, printable(getattr(self, name)))  # both quote names from outside


@dataclass(frozen=True)
class Verdict:
    """The main cause of slow work in one line, and all findings, the main one first.

    The first finding is a limit of trust only where no cause is known.
    """

    line: str
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Verdict:
        return cls(findings[0].line, tuple(findings))

    @property
    def trust(self) -> tuple[Finding, ...]:
        """Further findings, which limit trust in the numbers that the first finding rests on."""
        return tuple(finding for finding in self.findings[1:] if finding.limits_trust)

    @property
    def others(self) -> tuple[Finding, ...]:
        """All findings except the first one and those that limit trust."""
        return tuple(finding for finding in self.findings[1:] if not finding.limits_trust)

    @property
    def doubt(self) -> str:
        """A sentence that follows the first finding where something limits trust in it; else empty."""
        concerned = any({*self.findings[0].points[:1]} & {*limit.points} for limit in self.trust)
        return f"Confidence: {percent(self.findings[0].confidence)}." if concerned else ""

    @property
    def text(self) -> str:
        """A line for each limit of trust, then the line of the first finding."""
        return "\n".join([*(finding.summary for finding in self.trust), f"{self.line} {self.doubt}".rstrip()])

    @property
    def severity(self) -> Severity:
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=Severity.INFO)
