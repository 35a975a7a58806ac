"""What the watches of all batch systems share: how often they look, and what they show of a log."""

from __future__ import annotations

import re

SHORTEST_S, LONGEST_S, SHARE = 1.0, 30.0, 0.2  # least and most seconds between looks; share of time since a change

_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit)\b")
_SHOWN_ERRORS = 4
_TAIL_LINES, _TAIL_CHARACTERS, _LINE_CHARACTERS = 12, 2_000, 300


def interval_s(unchanged_s: float) -> float:
    """Seconds until the next look, if nothing has changed for `unchanged_s` seconds."""
    return min(max(SHARE * unchanged_s, SHORTEST_S), LONGEST_S)


def excerpt(text: str) -> str:
    """The end of a log without INFO lines, preceded by earlier error lines, which may name the first cause."""
    lines = [line for line in text.strip().splitlines() if " - INFO - " not in line]
    before, end = lines[:-_TAIL_LINES], lines[-_TAIL_LINES:]
    errors = dict.fromkeys(line for line in before if _ERROR_LINE.match(line))
    shown = [line[:_LINE_CHARACTERS] for line in list(errors)[-_SHOWN_ERRORS:]]
    first = "".join(f"{line}\n" for line in [*shown, *(["..."] if shown else [])])
    return first + "\n".join(end)[len(first) - _TAIL_CHARACTERS :]
