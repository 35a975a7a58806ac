"""Numbers as people write them."""

from __future__ import annotations

from decimal import Decimal


def number(value: float, digits: int = 3) -> str:
    """The digits that count, all those before the point, and never an exponent: `0.202`, `12.8`, `3,843`."""
    rounded = f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    return format(Decimal(rounded), ",f")


def shortened(text: str, limit: int) -> str:
    """The text of an error in so many characters: of the log that it quotes, indented by four, only the end is kept.

    What happened and the next step stay, which are its first and its last line.
    """
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


_QUOTED = " " * 4
_LEFT_OUT = f"{_QUOTED}| ..."
