"""Candidates for `release`: steps from one set of installed packages to another, one package at a time."""

from __future__ import annotations

from collections.abc import Mapping

from scalescope.model.environment import normalise

# Packages of a family with another name: `distributed` pins one release of `dask`.
_FAMILY = {"distributed": "dask"}


def mixtures(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    """All steps from `before` to `after` (versions by package), both included; each step changes one package.

    Packages whose names begin alike (`dask`, `dask-expr`; also `distributed`) are neighbours: they are often released
    together, so that most mixtures which cannot be installed lie next to each other. Names are normalised (PEP 503).
    """
    old, new = _normalised(before), _normalised(after)
    changed = sorted((name for name in old.keys() | new.keys() if old.get(name) != new.get(name)), key=_family)
    steps = [old]
    for name in changed:
        step = {other: version for other, version in steps[-1].items() if other != name}
        if name in new:
            step[name] = new[name]
        steps.append(dict(sorted(step.items())))
    return tuple(steps)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Changes in words: `dask 2023.5.0 → 2023.9.1, toolz 0.12 added`; empty if there are none."""
    old, new = _normalised(before), _normalised(after)
    names = sorted(old.keys() | new.keys(), key=_family)
    return ", ".join(_words(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _words(name: str, old: str | None, new: str | None) -> str:
    if old is None:
        return f"{name} {new} added"
    return f"{name} {old} removed" if new is None else f"{name} {old} → {new}"


def _normalised(packages: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted((normalise(name), version) for name, version in packages.items()))


def _family(name: str) -> tuple[str, str]:
    return _FAMILY.get(name, name.partition("-")[0]), name
