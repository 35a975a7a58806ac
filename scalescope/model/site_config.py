"""Dask's configuration on this machine, such as a site's files in /etc/dask: defaults of the fields of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SiteConfig:
    """What it says of one kind of cluster."""

    values: Mapping[str, Any] = field(default_factory=dict)  # of fields, by name
    origins: Mapping[str, str] = field(default_factory=dict)  # the file that each value is from, or `environment`
    left_out: Mapping[str, str] = field(default_factory=dict)  # keys that count for nothing here, and why


def settings(*section: str) -> dict[str, tuple[Any, str]]:
    """Values and origins in a section, by key with dashes: of all files, then of variables; the last one counts.

    `dask.config.get` would also return the defaults of a package, once that is imported.
    """
    import dask.config  # here: most kinds of clusters do without

    sources = [(str(path), found) for path, found in dask.config.collect_yaml(dask.config.paths, return_paths=True)]
    told: dict[str, tuple[Any, str]] = {}
    for origin, found in (*sources, ("environment", dask.config.collect_env())):
        for name in section:
            found = (found.get(name) if isinstance(found, Mapping) else None) or {}
        for key, value in found.items() if isinstance(found, Mapping) else ():
            told[str(key).replace("_", "-")] = (value, origin)
    return {key: (value, origin) for key, (value, origin) in told.items() if value not in (None, "", [], {})}
