"""Issues on GitHub, by its REST API.

`GITHUB_API_URL` is the address of the API unless that is github.com's. Redirects are not followed, because they would
carry the token to another host.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from scalescope.errors import InfrastructureError, InvalidField
from scalescope.redaction import GITHUB_TOKEN, know

SCHEME = "github:"
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.\.?$)[A-Za-z0-9._-]+")
TIMEOUT_S = 20.0  # longest wait for each part of an answer; a slower API counts as away
LONGEST_ANSWER = 10_000_000  # bytes of an answer that are read
LONGEST_TITLE, LONGEST_TEXT = 250, 65_000  # characters, below the limits of GitHub
ALL_FAIL = ("token", "unreachable", "limit")  # categories of errors that every further request would meet


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


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
            items = [each for each in self._ask("GET", path, {}, list, field) if isinstance(each, dict)]
            found = {each.get("number"): str(each.get("body")) for each in items if marker in str(each.get("body"))}
            if numbers := [number for number in found if isinstance(number, int)]:
                return f"{self.prefix}{min(numbers)}", found[min(numbers)]
        return None

    def open(self, alert: str, title: str, text: str) -> str:
        body = {"title": title[:LONGEST_TITLE], "body": text[:LONGEST_TEXT]}
        return f"{self.prefix}{self._ask('POST', self._issues, body, int, 'number')}"

    def comment(self, address: str, text: str, *, closed: bool | None) -> None:
        path = f"{self._issues}/{address.removeprefix(self.prefix)}"
        # The state first, since setting it twice does no harm: if it is refused, no comment is added each night.
        if closed is not None:
            self._ask("PATCH", path, {"state": "closed" if closed else "open"}, int, "number")
        self._ask("POST", f"{path}/comments", {"body": text[:LONGEST_TEXT]}, int, "id")

    @property
    def _issues(self) -> str:
        return f"/repos/{self.repository}/issues"

    def _ask(self, method: str, path: str, body: Mapping[str, Any], kind: type, field: str) -> Any:
        """Send a request, and return `field` of its answer, or the whole answer if `field` is empty."""
        where = f"GitHub, {method} {path.partition('?')[0]}"
        address = _base() + path
        headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {_token()}"}
        headers |= {
            "User-Agent": "scalescope",
            "X-GitHub-Api-Version": "2022-11-28",
            "Content-Type": "application/json",
        }
        asked = Request(address, json.dumps(body).encode() if body else None, headers, method=method)  # noqa: S310
        try:
            with _opener.open(asked, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(LONGEST_ANSWER))
        except HTTPError as error:
            raise _refused(error, where) from None
        except (OSError, HTTPException) as error:
            raise InfrastructureError(
                "GitHub could not be reached",
                where=where,
                cause=str(error),
                next_step="The next night tries again.",
                category="unreachable",
            ) from None
        except ValueError:
            found = None
        if field:
            found = found.get(field) if isinstance(found, dict) else None
        if not isinstance(found, kind):
            raise InfrastructureError(
                "GitHub gave an unexpected answer",
                where=where,
                next_step="Check whether a proxy answers, and whether GITHUB_API_URL is right.",
                category="answer",
            )
        return found


def _refused(error: HTTPError, where: str) -> InfrastructureError:
    headers = error.headers
    limited = error.code == 429 or headers.get("x-ratelimit-remaining") == "0" or headers.get("retry-after")
    category, next_step = {
        401: ("token", f"Renew the token in {GITHUB_TOKEN}."),
        403: ("token", f"Allow the token in {GITHUB_TOKEN} to read and write issues of this repository."),
        404: ("missing", f"Check that the repository has issues, and that the token in {GITHUB_TOKEN} may see it."),
        410: ("missing", "Check whether the issue was deleted, or issues are switched off."),
    }.get(error.code, ("answer", "The next night tries again."))
    if limited and error.code in (403, 429):
        category, next_step = "limit", "The next night tries again."
    elif 300 <= error.code < 400:
        next_step = "The repository or the issue has moved: give its new name."
    try:
        said = str(json.loads(error.read(LONGEST_ANSWER))["message"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        said = error.reason
    reached = "the limit of requests was reached: " if category == "limit" else ""
    return InfrastructureError(
        f"GitHub refused a request ({error.code})",
        where=where,
        cause=f"{reached}{said}",
        next_step=next_step,
        category=category,
    )


def _base() -> str:
    given = os.environ.get("GITHUB_API_URL", "").rstrip("/") or "https://api.github.com"
    parts = urlsplit(given)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")):
        raise InfrastructureError(
            "GITHUB_API_URL does not begin with https://",
            next_step="Give an https:// address: without encryption, others could read the token.",
            category="unreachable",
        )
    return given


def _token() -> str:
    know(GITHUB_TOKEN)
    found = os.environ.get(GITHUB_TOKEN, "").strip()
    if not re.fullmatch(r"[!-~]+", found):
        raise InfrastructureError(
            f"There is no token for GitHub in the environment variable {GITHUB_TOKEN}",
            next_step="Set it where nights run, to a token that may read and write issues of this repository.",
            category="token",
        )
    return found
