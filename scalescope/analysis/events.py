"""The structured events of a trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Columns = Mapping[str, Any]  # by name: `array.array`, numpy array or list, all of one length
Tables = Mapping[str, Columns]


def told(events: Columns, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Time and message of the events of one topic whose message is an object."""
    rows = zip(*(events.get(name, ()) for name in ("topic", "time", "message")), strict=True)
    found = [(float(when), json.loads(message)) for name, when, message in rows if name == topic]
    return [(when, message) for when, message in found if isinstance(message, dict)]
