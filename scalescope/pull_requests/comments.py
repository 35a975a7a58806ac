"""One comment on a pull request or merge request: made where something changed, edited later, never repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from scalescope.forge import GITHUB, GITLAB, LONGEST_TEXT, Forge

PAGE, MOST_PAGES = 100, 30  # comments per page of the API; most pages that are read


@dataclass(frozen=True)
class Discussion:
    """The comments of a pull request or merge request, as paths of the forge's API."""

    forge: Forge
    comments: str  # path of all comments
    comment: str  # path of one comment, without its id
    edit: str  # HTTP method that edits a comment

    def tell(self, marker: str, text: str, *, worth: bool) -> str:
        """Update our comment (it begins with `marker`); return `made`, `edited`, or an empty text.

        Without an earlier comment, a new one is made only if the text is `worth` it.
        """
        body = f"{marker}\n{text}"[:LONGEST_TEXT]
        known = self._find(marker)
        if known is None:
            if worth:
                self.forge.ask("POST", self.comments, {"body": body}, int, "id")
            return "made" if worth else ""
        number, before = known
        if before.strip() == body.strip():
            return ""
        self.forge.ask(self.edit, f"{self.comment}/{number}", {"body": body}, int, "id")
        return "edited"

    def _find(self, marker: str) -> tuple[int, str] | None:
        for page in range(1, MOST_PAGES + 1):
            path = f"{self.comments}?per_page={PAGE}&page={page}"
            found = self.forge.ask("GET", path, {}, list, "")
            for each in found:
                if isinstance(each, dict) and str(each.get("body", "")).startswith(marker):
                    return int(each["id"]), str(each["body"])
            if len(found) < PAGE:
                return None
        return None


def _of_github() -> Discussion | None:
    repository, event = os.environ.get("GITHUB_REPOSITORY", ""), os.environ.get("GITHUB_EVENT_PATH", "")
    if not repository or not event or not Path(event).is_file():
        return None
    number = (json.loads(Path(event).read_text(encoding="utf-8")).get("pull_request") or {}).get("number")
    issues = f"/repos/{quote(repository)}/issues"
    return Discussion(GITHUB, f"{issues}/{number}/comments", f"{issues}/comments", "PATCH") if number else None


def _of_gitlab() -> Discussion | None:
    project, number = os.environ.get("CI_PROJECT_ID", ""), os.environ.get("CI_MERGE_REQUEST_IID", "")
    notes = f"/projects/{quote(project, safe='')}/merge_requests/{quote(number, safe='')}/notes"
    return Discussion(GITLAB, notes, notes, "PUT") if project and number else None


_KNOWN: tuple[Callable[[], Discussion | None], ...] = (_of_github, _of_gitlab)


def discussion() -> Discussion | None:
    """The comments of the pull request that this CI job runs for, by CI variables; None without a pull request."""
    return next((found for each in _KNOWN if (found := each())), None)
