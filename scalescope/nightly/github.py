"""Issues on GitHub. The variable `GITHUB_API_URL` holds the API's address if it is not github.com's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from scalescope.errors import InvalidField
from scalescope.forge import GITHUB, LONGEST_TEXT

SCHEME = "github:"
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.\.?$)[A-Za-z0-9._-]+")
LONGEST_TITLE = 250  # characters; GitHub's limit is slightly above


def repository(name: str) -> str:
    """`OWNER/REPO` of `github:OWNER/REPO`; empty for the name of a folder."""
    if not name.startswith(SCHEME):
        return ""
    found = name.removeprefix(SCHEME)
    if not REPOSITORY.fullmatch(found):
        raise InvalidField("issues", name, "github:OWNER/REPO, or a folder")
    return found


@dataclass(frozen=True)
class GitHubIssues:
    """The issues of a repository. Their addresses are like `github:OWNER/REPO#12`."""

    repository: str

    @property
    def prefix(self) -> str:
        return f"{SCHEME}{self.repository}#"

    def find(self, alert: str, marker: str) -> tuple[str, str] | None:
        """See `IssueTracker`. Looks among the newest issues first, because GitHub's search lags behind."""
        query = quote(f"repo:{self.repository} is:issue in:body {alert}", safe="")
        for path, field in ((f"{self._issues}?state=all&per_page=100", ""), (f"/search/issues?q={query}", "items")):
            items = [each for each in GITHUB.ask("GET", path, {}, list, field) if isinstance(each, dict)]
            found = {each.get("number"): str(each.get("body")) for each in items if marker in str(each.get("body"))}
            if numbers := [number for number in found if isinstance(number, int)]:
                return f"{self.prefix}{min(numbers)}", found[min(numbers)]
        return None

    def open(self, alert: str, title: str, text: str) -> str:
        body = {"title": title[:LONGEST_TITLE], "body": text[:LONGEST_TEXT]}
        return f"{self.prefix}{GITHUB.ask('POST', self._issues, body, int, 'number')}"

    def comment(self, address: str, text: str, *, closed: bool | None) -> None:
        path = f"{self._issues}/{address.removeprefix(self.prefix)}"
        # The state first: if GitHub refuses it, no comment is written. Otherwise, each night's retry would add one.
        if closed is not None:
            GITHUB.ask("PATCH", path, {"state": "closed" if closed else "open"}, int, "number")
        GITHUB.ask("POST", f"{path}/comments", {"body": text[:LONGEST_TEXT]}, int, "id")

    @property
    def _issues(self) -> str:
        return f"/repos/{self.repository}/issues"
