"""Writes `docs/causes.md` from the registry of causes: `python docs/generate_causes.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scalescope.diagnosis.causes import OF_SWEEPS, OF_TRIALS
from scalescope.diagnosis.registry import NOTEWORTHY, SEVERE, Cause
from scalescope.model.finding import Severity
from scalescope.model.metrics import PARTS

PAGE = Path(__file__).with_name("causes.md")
HIGH, MEDIUM, LOW, INFO = (severity.word for severity in Severity)
HEAD = f"""# Causes

Every finding has one of these codes. Findings are ranked by severity ({HIGH}, {MEDIUM}, {LOW}, {INFO}) and then by the
worker time lost (`lost_s`, in thread-seconds; each function's docstring gives its formula). What loses less than
{NOTEWORTHY:.0%} of the worker time is not named; from {SEVERE:.0%} on, a cause with a remedy is critical, and
`scalescope sweep` exits with 1.

This page is written by `docs/generate_causes.py` from the declarations in `scalescope/diagnosis/causes`;
[Adding a cause](adding-a-cause.md) says how to add one.
"""
OF_TRIALS_HEAD = """
## What the records of a trial show

A point has such a finding when at least half of its trials have it. The idle threads that it explains are not explained
again by the codes of the sweep below.
"""
OF_SWEEPS_HEAD = """
## What only a sweep shows
"""


def page() -> str:
    """The page as the registry has it."""
    return "".join([HEAD, OF_TRIALS_HEAD, *map(_section, OF_TRIALS), OF_SWEEPS_HEAD, *map(_section, OF_SWEEPS)])


def _section(cause: Cause[object]) -> str:
    said = {
        "Needs": cause.needs,
        "Ruled out by": cause.ruled_out_by,
        "Explains worker time": ", ".join(PARTS[part].title for part in cause.parts),
        "Rules out": _codes(cause.rules_out),
        "Remedy": cause.remedy,
    }
    rows = [f"- **{name}**: {text.rstrip('.')}." for name, text in said.items() if text]
    rows += [f"- **More**: <{cause.link}>"] if cause.link else []
    return "\n".join([f"\n### `{cause.code}`: {cause.title}\n", *rows]) + "\n"


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
