"""Numbers, names and texts as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any


def number(value: float, digits: int = 3) -> str:
    """`digits` significant digits, all those before the point, and no exponent: `0.202`, `12.8`, `3,843`."""
    rounded = f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    return format(Decimal(rounded), ",f")


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """`12 %` for 0.12."""
    return f"{100 * share:.0f} %"


_HALF, _TWICE = 0.505, 1.995  # a change outside these bounds is written as a factor; 1.995 is rounded to "2 times"


def change(ratio: float) -> str:
    """A factor in words: `5.1 % higher`, `0.4 % lower`, `12 times as high`, `equal`."""
    if math.isinf(ratio):
        return "above 0 instead of 0"
    if not _HALF < ratio < _TWICE:
        return f"{number(ratio)} times as high"
    share = 100 * (ratio - 1)
    if abs(share) < 1e-9:
        return "equal"
    return f"{_digits(abs(share))} % {'higher' if share > 0 else 'lower'}"


def signed_change(ratio: float) -> str:
    """A factor in short form: `+5.1 %`, `-0.4 %`, `12 times`."""
    return f"{_digits(100 * (ratio - 1), '+')} %" if _HALF < ratio < _TWICE else f"{number(ratio)} times"


def _digits(percent: float, sign: str = "") -> str:
    return f"{percent:{sign}.2g}" if abs(percent) < 99.5 else f"{percent:{sign}.0f}"


def pairs(values: Mapping[str, Any]) -> str:
    """`workers=200, items=199`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def some(names: Sequence[str], limit: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(f"`{name}`" for name in names[:limit]) + more


def duration(seconds: float) -> str:
    """`12.3 s` or `45 ms`."""
    return f"{number(seconds)} s" if seconds >= 0.9995 else f"{number(1000 * seconds)} ms"


def size(nbytes: float) -> str:
    """Binary units, as Dask writes them: `12.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{number(nbytes)} {unit}"
        nbytes /= 1024
    return f"{number(nbytes)} TiB"


def cut(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def middle_cut(key: str, limit: int = 48) -> str:
    """Cut a key's middle: its start names the function, its end the item."""
    return key if len(key) <= limit else f"{key[: limit - 17]}…{key[-16:]}"


def first_line(text: str, limit: int = 160) -> str:
    """The first line of a text, without a full stop."""
    return cut((text.strip().splitlines() or [""])[0].rstrip(". "), limit)


def shortened(text: str, limit: int) -> str:
    """Shorten the text of an error: keep the first and last lines, cut the start of a quoted log (indented by four)."""
    excess, kept = len(text) - limit, []
    for line in text.splitlines():
        if excess > 0 and line.startswith(_QUOTED):
            excess -= len(line) + 1 - (len(_LEFT_OUT) + 1) * (_LEFT_OUT not in kept)
            kept += [_LEFT_OUT] if _LEFT_OUT not in kept else []
        else:
            kept.append(line)
    whole = "\n".join(kept)
    if len(whole) <= limit:
        return whole
    last = kept[-1][-limit // 2 :] if len(kept) > 1 else ""
    return f"{whole[: limit - len(last) - 2]}…\n{last}".rstrip()


MISSING = "–"  # text for a missing value


def seconds(value: float | None) -> str:
    """Three significant digits: `0.0123`, `1.23`, `12.3`, `1,234`."""
    if value is None:
        return MISSING
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{min(max(2 - math.floor(math.log10(value)), 0), 6)}f}"


def ratio(value: float | None) -> str:
    return MISSING if value is None else f"{seconds(value)}×"


def count(value: float) -> str:
    """A whole number unchanged; another number below 100 with one digit after the point, else rounded."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


_QUOTED = " " * 4
_LEFT_OUT = f"{_QUOTED}| ..."
