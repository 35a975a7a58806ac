"""Links between runs and studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.model.study import Study
from scalescope.report.table import markdown_text
from scalescope.store.store import SweepRun
from scalescope.store.studies import is_study

MOST_LINKS = 12  # most links in reports; JSON has all


@dataclass(frozen=True)
class RelatedLink:
    """A link to another run or study."""

    what: str  # relation to the other: `Run`, `Follows run`, `Follows study`, `Part of study` or `Led to`
    id: str

    @property
    def command(self) -> str:
        return f"scalescope show {self.id}"

    @property
    def report_command(self) -> str:
        return f"scalescope report {self.id} --output {self.id}.html"


def of_study(study: Study) -> tuple[RelatedLink, ...]:
    """Links to the runs of a study, to the run or study it follows, and to those it led to."""
    found = [RelatedLink("Run", run) for run in study.runs]
    if study.follows:
        found.append(RelatedLink("Follows study" if is_study(study.follows) else "Follows run", study.follows))
    return tuple(found + [RelatedLink("Led to", other) for other in study.followed_by])


def of_run(run: SweepRun, followed_by: Sequence[str] = ()) -> tuple[RelatedLink, ...]:
    """Links to the study that a run belongs to, and to the studies that the run led to (`Studies.following`)."""
    part = [RelatedLink("Part of study", run.study)] if run.study else []
    return tuple(part + [RelatedLink("Led to", other) for other in followed_by])


def markdown(links: Sequence[RelatedLink]) -> str:
    return "\n".join(f"- {link.what} {markdown_text(link.id)}: `{link.command}`" for link in links[:MOST_LINKS])


def lines(links: Sequence[RelatedLink]) -> list[str]:
    shown = [f"{link.what} {link.id} ({link.command})" for link in links[:MOST_LINKS]]
    left_out = len(links) - len(shown)
    return [*shown, f"and {left_out} more (--json has all)"] if left_out else shown
