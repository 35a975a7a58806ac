"""Runs to be asked for, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.run import request


def asked(sweep: Mapping[str, Any], *, records: str = "", **given: Any) -> request.RunRequest:
    """A checked run of a sweep, with what else is given."""
    return request.check({**sweep, **given}, records=records)
