"""Numbers, names and keys as findings write them."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.model.words import number


def some(names: Sequence[str], limit: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(f"`{name}`" for name in names[:limit]) + more


def duration(seconds: float) -> str:
    """Seconds in three digits and a unit that suits them."""
    if seconds >= 0.9995:
        return f"{number(seconds)} s"
    return f"{number(1000 * seconds)} ms"


def size(nbytes: float) -> str:
    """Bytes in three digits and a unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} TB"


def cut(text: str, limit: int = 60) -> str:
    """A text without its end, where it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def middle_cut(key: str, limit: int = 48) -> str:
    """A key without its middle: its begin names the function, its end the item."""
    return key if len(key) <= limit else f"{key[: limit - 17]}…{key[-16:]}"


def first_line(text: str, limit: int = 160) -> str:
    """The first line of a text, without a full stop of its own."""
    return cut((text.strip().splitlines() or [""])[0].rstrip(". "), limit)
