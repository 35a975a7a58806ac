"""Refuses keys that the present Dask configuration does not know: they would change nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from scalescope.errors import UnknownName
from scalescope.model.partition_calls import NPARTITIONS
from scalescope.model.sweep import ZERO_LENGTH, Point

OWN = (NPARTITIONS, ZERO_LENGTH)  # Scalescope's own keys


def check(points: Iterable[Point]) -> None:
    """Raise `UnknownName` if a point sets a key that Dask does not know.

    A section with a name unlike all of Dask's belongs to a plugin, and is allowed. So are keys that the user's own Dask
    files set, and all keys of a section whose names are free, such as environment variables.
    """
    given = {name: value for point in points for name, value in point.dask_config.items() if name not in OWN}
    if not given:
        return
    import dask
    import distributed  # noqa: F401  # its import adds sections

    known = set(_leaves(dask.config.config))
    for name, value in given.items():
        if name.replace("_", "-") not in known and _is_closed(name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise UnknownName(
                name,
                value,
                f"a key of Dask's configuration{meant}",
                next_step="to use the key of a plugin, set it in a file in ~/.config/dask",
            )


def _leaves(section: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        name = f"{prefix}{key}".replace("_", "-")
        yield name
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")


def _is_closed(name: str) -> bool:
    """Whether an unknown key is an error: Dask has its section, with fixed keys, or has one of a similar name."""
    import dask

    first, *rest = name.replace("_", "-").split(".")
    section = dask.config.config.get(first)
    if section is None:
        return bool(difflib.get_close_matches(first, dask.config.config, n=1, cutoff=0.8))
    for part in rest:
        if not isinstance(section, Mapping):
            return True
        if not section or any(str(key).isupper() for key in section):
            return False
        section = {str(key).replace("_", "-"): value for key, value in section.items()}.get(part)
        if section is None:
            return True
    return False
