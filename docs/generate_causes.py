"""Writes `docs/causes.md` from the catalogue: `python docs/generate_causes.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scalescope.diagnosis.causes import CAUSES
from scalescope.diagnosis.causes.base import SEVERE, WORTH_A_WORD, Entry
from scalescope.diagnosis.causes.sweeps import ENTRIES

PAGE = Path(__file__).with_name("causes.md")
HEAD = f"""# Causes

Every finding has one of these codes. Findings are ranked by severity and then by the worker time lost (`lost_s`, in
thread-seconds; each function's docstring gives its formula). What loses less than {WORTH_A_WORD:.0%} of the worker
time is not worth a word; from {SEVERE:.0%} on, a cause with a remedy is severe, and `scalescope sweep` exits with 1.

This page is written by `docs/generate_causes.py`; change the catalogue in `scalescope/analysis/causes` instead.
"""
OF_TRIALS = """
## What the records of a trial show

A point has such a finding when at least half of its trials have it. Of the idle threads that it explains, the codes of
the sweep below speak no more.
"""
OF_SWEEPS = """
## What only a sweep shows
"""


def page() -> str:
    """The page as the catalogue has it."""
    return "".join([HEAD, OF_TRIALS, *_sections(CAUSES), OF_SWEEPS, *_sections(ENTRIES)])


def _sections(entries: Iterable[Entry]) -> Iterable[str]:
    for entry in entries:
        rows = [
            f"\n### `{entry.code}`: {entry.title}\n",
            f"- **Needs**: {_sentence(entry.needs)}",
            f"- **Ruled out by**: {_sentence(entry.ruled_out_by)}",
        ]
        rows += [f"- **Remedy**: {_sentence(entry.remedy)}"] if entry.remedy else []
        rows += [f"- **More**: <{entry.link}>"] if entry.link else []
        yield "\n".join(rows) + "\n"


def _sentence(text: str) -> str:
    return text.rstrip(".") + "."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
