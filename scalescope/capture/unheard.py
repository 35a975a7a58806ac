"""Keeps Python from printing what our own threads and exit functions raise: they run in the user's program."""

from __future__ import annotations

from collections.abc import Callable


def unheard(function: Callable[[], object], failed: Callable[[Exception], object]) -> Callable[[], None]:
    """`function`, of which only `failed` learns what it raises."""

    def call() -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - of whatever kind
            failed(error)

    return call
