"""The REST APIs of GitHub and GitLab.

Redirects are not followed, because they would carry the token to another host.
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
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from scalescope.errors import InfrastructureError
from scalescope.redaction import GITHUB_TOKEN, GITLAB_TOKEN, know

TIMEOUT_S = 20.0  # seconds to wait for each part of an answer; a slower API counts as unreachable
LONGEST_ANSWER = 10_000_000  # bytes: longest answer that is read
LONGEST_TEXT = 65_000  # most characters of a text, below the limits of both forges
ALL_FAIL = ("token", "unreachable", "limit")  # error categories in which all further requests would fail, too


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


@dataclass(frozen=True)
class Forge:
    """A site with repositories and its API."""

    name: str
    address: str  # address of the API, unless the environment variable `variable` is set
    variable: str  # environment variable with another address of the API
    token: str  # environment variable with the token
    token_header: tuple[str, str]  # name of the header, and the text before the token
    headers: Mapping[str, str]
    rights: str  # rights that the token needs

    def ask(self, method: str, path: str, body: Mapping[str, Any], kind: type, field: str) -> Any:
        """Send a request, and return `field` of its answer, or the whole answer if `field` is empty.

        Raises:
            InfrastructureError: The request was refused or not answered; see `ALL_FAIL` for categories.
        """
        where = f"{self.name}, {method} {path.partition('?')[0]}"
        name, before = self.token_header
        headers = {"User-Agent": "scalescope", "Content-Type": "application/json", **self.headers}
        headers[name] = before + self._token()
        data = json.dumps(body).encode() if body else None
        asked = Request(self._base() + path, data, headers, method=method)  # noqa: S310
        try:
            with _opener.open(asked, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(LONGEST_ANSWER))
        except HTTPError as error:
            raise self._refused(error, where) from None
        except (OSError, HTTPException) as error:
            raise InfrastructureError(
                f"{self.name} could not be reached",
                where=where,
                cause=str(error),
                next_step="Try again later.",
                category="unreachable",
            ) from None
        except ValueError:
            found = None
        if field:
            found = found.get(field) if isinstance(found, dict) else None
        if not isinstance(found, kind):
            raise InfrastructureError(
                f"{self.name} gave an unexpected answer",
                where=where,
                next_step=f"Check {self.variable}, and whether a proxy answered instead.",
                category="answer",
            )
        return found

    def _refused(self, error: HTTPError, where: str) -> InfrastructureError:
        headers = error.headers
        limited = error.code == 429 or headers.get("x-ratelimit-remaining") == "0" or headers.get("retry-after")
        category, next_step = {
            401: ("token", f"Renew the token in {self.token}."),
            403: ("token", f"Allow the token in {self.token} to {self.rights}."),
            404: ("missing", f"Check that repository and issue exist and the token in {self.token} may see them."),
            410: ("missing", "Check whether the issue was deleted, or issues are switched off."),
        }.get(error.code, ("answer", "Try again later."))
        if limited and error.code in (403, 429):
            category, next_step = "limit", "Try again later."
        elif 300 <= error.code < 400:
            next_step = "The repository or the issue has moved: give the new name."
        try:
            said = str(json.loads(error.read(LONGEST_ANSWER))["message"])
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            said = error.reason
        reached = "the limit of requests was reached: " if category == "limit" else ""
        return InfrastructureError(
            f"{self.name} refused a request ({error.code})",
            where=where,
            cause=f"{reached}{said}",
            next_step=next_step,
            category=category,
        )

    def _base(self) -> str:
        given = os.environ.get(self.variable, "").rstrip("/") or self.address
        parts = urlsplit(given)
        local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme != "https" and not local:
            raise InfrastructureError(
                f"{self.variable} does not begin with https://",
                next_step="Give an https:// address: without encryption, others could read the token.",
                category="unreachable",
            )
        return given

    def _token(self) -> str:
        know(self.token)
        found = os.environ.get(self.token, "").strip()
        if not re.fullmatch(r"[!-~]+", found):
            raise InfrastructureError(
                f"There is no token for {self.name} in the environment variable {self.token}",
                next_step=f"Set the variable to a token that may {self.rights}.",
                category="token",
            )
        return found


GITHUB = Forge(
    "GitHub",
    "https://api.github.com",
    "GITHUB_API_URL",
    GITHUB_TOKEN,
    ("Authorization", "Bearer "),
    {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
    "read and write issues and pull requests of this repository",
)
GITLAB = Forge(
    "GitLab",
    "https://gitlab.com/api/v4",
    "CI_API_V4_URL",
    GITLAB_TOKEN,
    ("PRIVATE-TOKEN", ""),
    {},
    "use the API of this project (scope `api`)",
)
