"""Secrets that this process knows, and their removal from whatever is shown, sent or kept.

Secrets are values of variables that `cluster.secrets` names, and of those with a name such as `PGPASSWORD`. They are
removed where an error is made (`scalescope.errors`), where a driver answers (`scalescope.driver.channel`), and where
its raw records are written (`scalescope.model.spool`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

# Pattern for names of variables or fields that hold a secret
NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|token|(api|access|private)_?key|credential|auth_string|otlp_(\w+_)?headers",
    re.IGNORECASE,
)

HIDDEN = "***"
LOOKS = re.compile(  # text that looks like a secret; token formats as documented by their vendors
    r"(?P<user>://[^\s/:@]*:)(?!\*{3}@)[^\s/@]+@"  # an address with a password
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\b(gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|AIza)[\w-]{16,}"  # GitHub, GitLab, Slack, OpenAI, Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\."  # a JSON web token
    r"|\bBearer +\S"
    rf"|(?P<name>({NAMES.pattern})\w*[\"']?\s*[=:]\s*[\"']?)[^\s\"']",  # KEY=value, --key=, JSON
    re.IGNORECASE,
)
GITHUB_TOKEN = "SCALESCOPE_GITHUB_TOKEN"  # noqa: S105 - the variable's name
GITLAB_TOKEN = "SCALESCOPE_GITLAB_TOKEN"  # noqa: S105
SHORTEST = 6  # fewest characters of a secret: shorter values occur in texts by chance

_named: set[str] = set()


def know(*variables: str) -> None:
    """Make the values of these environment variables secret, and read the environment again."""
    _named.update(variables)
    _pattern.cache_clear()


def passed_on() -> dict[str, str]:
    """The environment for processes that run the code of others: without the secrets of Scalescope itself."""
    return {name: value for name, value in os.environ.items() if name not in (GITHUB_TOKEN, GITLAB_TOKEN)}


def hide(text: str) -> str:
    """`text` with `HIDDEN` for known secrets, also where JSON, Python or an address escapes their characters."""
    pattern = _pattern()
    return text if pattern is None else pattern.sub(HIDDEN, text)


def hide_all(value: Any) -> Any:
    """A JSON value with `hide` applied to every text in it, names included."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(name) if isinstance(name, str) else name: hide_all(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [hide_all(item) for item in value]
    return value


def masked(text: str) -> str:
    """`text` up to the first part that looks like a secret, for messages that repeat what a person wrote.

    If the text is a Python literal, its closing quotes and brackets are kept.
    """
    found = LOOKS.search(text)
    if found is None:
        return text
    closing = re.search(r"['\")\]}]*$", text) if text.startswith(("'", '"', "(", "[", "{")) else None
    return text[: found.start()] + (found["user"] or found["name"] or "") + HIDDEN + (closing[0] if closing else "")


def knows_any() -> bool:
    return _pattern() is not None


@cache
def _pattern() -> re.Pattern[str] | None:
    named = {name: value for name, value in os.environ.items() if name in _named or NAMES.search(name)}
    # values that are paths of existing files are not secret
    stripped = {value.strip() for value in named.values()}
    values = {value for value in stripped if len(value) >= SHORTEST and not os.path.exists(value)}
    forms = values | {form for value in values for form in _forms(value)}
    forms |= {again for form in forms for again in _forms(form)}  # an error that quotes another error is escaped twice
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None


def _forms(value: str) -> set[str]:
    return {quote(value, safe=""), quote(value), json.dumps(value)[1:-1], repr(value)[1:-1], f"{value!a}"[1:-1]}
