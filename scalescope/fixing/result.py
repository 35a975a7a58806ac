"""What became of the findings of a program: patches that were proven, withdrawn or not written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scalescope.fixing.proof import Proof
from scalescope.model.finding import Patch, Verdict

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Tried:
    """A patch for one finding, and the result of its proof."""

    code: str  # code of the cause
    finding: str  # line of the finding
    rewrite: str  # name of the rewrite
    what: str  # what was changed, as a clause
    diff: str
    proof: Proof
    why: str = ""  # largest parts of the saved seconds, from the records; empty if unknown

    @property
    def lines(self) -> list[str]:
        """The proof, and why the patched script is faster, without full stops."""
        return [self.proof.line, *([f"Why it is faster, by the records: {self.why}"] if self.why else [])]


@dataclass(frozen=True)
class LeftAlone:
    """A finding whose code was left alone, and why."""

    code: str
    finding: str
    reason: str


@dataclass(frozen=True)
class Fix:
    """What became of a script's findings."""

    script: Path
    root: Path  # folder to which the names of files are relative
    before: Mapping[Path, bytes]  # contents of the patched files before the change, by relative path
    after: Mapping[Path, bytes]
    settings: str = ""  # proven options or environment variables, as a diff; empty if there are none
    measured_by: tuple[str, ...] = ()  # words of the command that runs a workload with proven settings
    proven: tuple[Tried, ...] = ()
    withdrawn: tuple[Tried, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def patch(self) -> str:
        """All proven patches as one, as `git apply` takes it; empty if there is none."""
        return "".join(diff(name, self.before[name], self.after[name]) for name in sorted(self.after))

    @property
    def times(self) -> float:
        """How many times as fast the script is with all proven patches."""
        product = 1.0
        for each in self.proven:
            product *= each.proof.times or 1.0
        return product

    @property
    def outcome(self) -> tuple[str, str]:
        return "", told(self)

    def shown_in(self, verdict: Verdict) -> Verdict:
        """The verdict, with the tried patch in each finding; if several were tried for a cause, the proven one."""
        tried = {
            each.code: Patch(each.diff, ". ".join(each.lines), each.proof.proven)
            for each in (*self.withdrawn, *self.proven)
        }
        findings = tuple(replace(each, patch=tried.get(each.code)) for each in verdict.findings)
        return replace(verdict, findings=findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "script": str(self.script),
            "patch": shown(self.patch),
            "settings": self.settings,
            "times": self.times,
            **{name: [asdict(each) for each in getattr(self, name)] for name in ("proven", "withdrawn", "left")},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        for each in self.proven:
            yield f"✗ {each.finding}"
            yield each.diff.rstrip("\n")
            yield from (f"{mark} {line}." for mark, line in zip("✓ ", each.lines, strict=False))
        for each in self.withdrawn:
            yield f"✗ {each.finding}"
            yield f"  A patch ({each.what}) was {each.proof.line}."
        for alone in self.left:
            yield f"✗ {alone.finding}"
            yield f"  No patch: {alone.reason}."
        yield from self.notes
        if not (self.proven or self.withdrawn or self.left):
            yield "✓ Nothing to patch."


def diff(name: Path, before: bytes, after: bytes) -> str:
    """A unified diff of a file, by its relative path; bytes that are not UTF-8 become surrogates."""
    old, new = (_LINE.findall(each.decode(errors="surrogateescape")) for each in (before, after))
    found = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n" for each in found)


def shown(text: str) -> str:
    """A text without surrogates, for terminals and JSON."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def told(found: Fix) -> str:
    """The last line of the answer: how many patches are proven, and what they bring together."""
    if not found.proven:
        return "No patch is proven."
    count = "1 patch" if len(found.proven) == 1 else f"{len(found.proven)} patches"
    return f"{count}: {found.script.name} is {found.times:.3g} times as fast."
