"""One issue for each alert: opened once, commented when the alert changes, and closed when it is over.

Each alert stores what the tracker has been told; whatever failed is tried again the next night.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from scalescope.errors import InfrastructureError, StoreError
from scalescope.forge import ALL_FAIL
from scalescope.model.sweep import digest
from scalescope.nightly import alerts, github, night_record
from scalescope.nightly.night_record import Alert, AlertState
from scalescope.redaction import hide
from scalescope.report import files
from scalescope.run.output_paths import OutputPath
from scalescope.run.runner import Runner
from scalescope.store.store import Store

ENDED = {
    AlertState.RESOLVED: "This alert was resolved: its series recovered, or somebody marked it as resolved.",
    AlertState.ACCEPTED: "The new level was accepted.",
    AlertState.FALSE: "This alert was marked as false.",
}


class IssueTracker(Protocol):
    """Keeps issues. Each method raises `InfrastructureError` or `StoreError` if the tracker fails."""

    @property
    def prefix(self) -> str:
        """Start of the addresses of its issues."""

    def find(self, alert: str, marker: str) -> tuple[str, str] | None:
        """Address and text of the issue of an alert, open or closed, whose text holds `marker`; None without one."""

    def open(self, alert: str, title: str, text: str) -> str:
        """Open an issue, and return its address."""

    def comment(self, address: str, text: str, *, closed: bool | None) -> None:
        """Comment on an issue, and close or reopen it; None leaves it as it is."""


@dataclass(frozen=True)
class IssueFolder:
    """Writes a Markdown file for each alert."""

    folder: str  # path or address

    @property
    def prefix(self) -> str:
        return f"{self.folder}/"

    def find(self, alert: str, marker: str) -> tuple[str, str] | None:
        text = files.read(self._place(alert), "issue")
        return (self._place(alert), text) if marker in text else None

    def open(self, alert: str, title: str, text: str) -> str:
        files.make_folder(self.folder, "issue")
        files.write(self._place(alert), f"{text}\n", "issue")
        return self._place(alert)

    def comment(self, address: str, text: str, *, closed: bool | None) -> None:
        word = {True: "Closed", False: "Reopened", None: "Changed"}[closed]
        heading = f"---\n\n**{word} on {datetime.now(UTC):%Y-%m-%d}**"
        files.write(address, f"{files.read(address, 'issue')}\n{heading}\n\n{text}\n", "issue")

    def _place(self, alert: str) -> str:
        return f"{self.folder}/alert-{alert}.md"


def tracker(name: str, history: str, store: Store, runner: Runner) -> IssueTracker | None:
    """The tracker that `--issues` names; checked before anything is measured. None without a name."""
    if not name:
        return None
    if found := github.repository(name):
        return github.GitHubIssues(found)
    return IssueFolder(OutputPath.of("issues", name, store, runner).made(history).rstrip("/"))


def bring_up_to_date(store: Store, history: str, tracker: IssueTracker) -> list[str]:
    """Tell the tracker about changed alerts of a history; return failures, in sentences."""
    nights = night_record.nights(store, history)
    newest = {alert.id: alert for night in nights for alert in night.record.alerts}
    problems = []
    for alert in newest.values():
        try:
            told = _tell(alert, tracker)
        except (InfrastructureError, StoreError) as error:
            problems.append(f"issue of alert {alert.id}: {error.line}")
            if error.category in ALL_FAIL:
                break
            continue
        if told != alert:
            night_record.amend(store, alert.night, alerts=[told])
    return problems


def _tell(alert: Alert, tracker: IssueTracker) -> Alert:
    ongoing = alert.state in alerts.ONGOING
    says = digest([tracker.prefix, ongoing, alert.culprit.line, sorted(alert.series)])
    address = alert.issue if alert.issue.startswith(tracker.prefix) else ""
    if says == alert.issue_says or not (address or ongoing):
        return alert
    if address:
        text = "The series of this alert have changed.\n\n" + alerts.summary(alert) if ongoing else ENDED[alert.state]
        tracker.comment(address, hide(text), closed=None if ongoing else True)
    elif found := tracker.find(alert.id, f"Alert `{alert.id}`"):
        address, text = found
        if alert.night not in text:  # else the same night opened the issue, but stopped before it stored the address
            again = f"Found again by night `{alert.night}`.\n\n{alerts.summary(alert)}"
            tracker.comment(address, hide(again), closed=False)
    else:
        marker = f"Alert `{alert.id}` of night `{alert.night}`: `scalescope alerts show {alert.id}` shows it."
        address = tracker.open(alert.id, hide(alerts.line(alert)), f"{marker}\n\n{hide(alerts.issue(alert))}")
    return replace(alert, issue=address, issue_says=says)
