"""A study for programs and web pages: JSON, Markdown, rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalescope.model.study import Study
from scalescope.report import links
from scalescope.report.table import markdown_list, markdown_text, to_mappings
from scalescope.report.table import to_markdown as table_markdown
from scalescope.store.store import SweepRun
from scalescope.studies.report import headline, sheet

# Increased whenever a key of `to_json` changes its meaning or is removed.
SCHEMA = 1


def identity(study: Study) -> dict[str, Any]:
    return {
        "study": study.id,
        "kind": str(study.kind),
        "finished": bool(study.finished_at),
        "line": study.line,
        "alarm": study.alarm,
        "runs": list(study.runs),
        "follows": study.follows,
        "followed_by": list(study.followed_by),
        "created_at": study.created_at,
        "finished_at": study.finished_at,
        "store": study.where,
    }


def to_json(study: Study) -> dict[str, Any]:
    return {"schema": SCHEMA, **identity(study), "question": dict(study.question), "result": dict(study.result)}


def _code(code: tuple[str, str]) -> str:
    heading, text = code
    return f"{markdown_text(heading)}\n\n" + "\n".join(f"    {line}" for line in text.splitlines())


def to_rows(study: Study, runs: Sequence[SweepRun]) -> list[dict[str, str]]:
    """The rows of the table, each a mapping of headings to cells that are safe as HTML."""
    table = sheet(study, runs).table
    return [] if table is None else to_mappings(table)


def to_markdown(study: Study, runs: Sequence[SweepRun]) -> str:
    """The same report as on a terminal, and the question; escaped for Markdown and HTML."""
    shown = sheet(study, runs)
    blocks = [
        f"**{markdown_text(headline(study))}**",
        table_markdown(shown.table) if shown.table is not None else "",
        markdown_list("", [note.text for note in shown.notes]),
        _code(shown.code) if shown.code[1] else "",
        f"Changelog: {markdown_text(shown.changelog)}" if shown.changelog else "",
        markdown_list("What was asked", [f"{term}: {text}" for term, text in shown.asked]),
        markdown_list("How sure", [f"{term}: {text}" for term, text in shown.sure if text]),
        links.markdown(links.of_study(study)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"
