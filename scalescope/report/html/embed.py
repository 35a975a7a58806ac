"""Embeds scripts and data into a page, with a policy that forbids everything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from markupsafe import Markup, escape

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_json(text: str) -> Markup:
    """JSON that is safe inside `<script type="application/json">`."""
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return Markup(text)  # noqa: S704 (escaped above, in the one way that JSON allows)


def coded(text: str) -> Markup:
    """Escaped text; text between backticks becomes code."""
    pieces = str(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(each) if i % 2 else each for i, each in enumerate(pieces))


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy that allows only these scripts and no requests.

    Styles may be inline because Bokeh writes some; `data:` images are Bokeh's icons.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def safe_link(address: str) -> str:
    """An http address, or an empty string: stored findings could hold any text."""
    return address if address.startswith(("https://", "http://")) else ""


def raw(text: str) -> Markup:
    """A script or style sheet of this package or of Bokeh, to be embedded unchanged."""
    lowered = text.lower()
    if "</script" in lowered or "</style" in lowered or "<!--" in lowered:
        raise ValueError("this text would end the element that it stands in")
    return Markup(text)  # noqa: S704 (only for files of this package and of Bokeh)
