"""What an orchestrator shows of a fix."""

from __future__ import annotations

from scalescope.fixing.result import Fix, told
from scalescope.fixing.subject import Subject
from scalescope.model.sweep import digest
from scalescope.report.table import markdown_text
from scalescope.run.runner import Publication


def publication(subject: Subject, found: Fix) -> Publication:
    """Diffs with their proofs, and why other patches are not offered."""
    text = markdown_text
    parts = [
        "\n\n".join([f"{text(each.finding)}\n\n```diff\n{each.diff}```", *(f"{text(line)}." for line in each.lines)])
        for each in found.proven
    ]
    parts += [
        f"{text(each.finding)}\n\nA patch ({text(each.what)}) was {text(each.proof.line)}." for each in found.withdrawn
    ]
    parts += [f"{text(each.finding)}\n\nNo patch: {text(each.reason)}." for each in found.left]
    parts += map(text, found.notes)
    return Publication(f"fix of {subject.name}", digest(subject.words), told(found), "\n\n".join(parts))
