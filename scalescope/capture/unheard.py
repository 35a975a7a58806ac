"""Keeps Python from printing errors of our threads and exit functions, which run in the user's program."""

from __future__ import annotations

from collections.abc import Callable


def unheard(function: Callable[[], object], failed: Callable[[Exception], object]) -> Callable[[], None]:
    """Wrap `function`: its errors go to `failed` and nowhere else."""

    def call() -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - any error of our code
            failed(error)

    return call
