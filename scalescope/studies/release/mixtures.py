"""Candidates for `release`: steps from one set of installed packages to another, one package at a time."""

from __future__ import annotations

from collections.abc import Mapping

from scalescope.analysis.culprits import changed_packages
from scalescope.model.environment import normalise


def mixtures(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    """All steps from `before` to `after` (versions by package), both included; each step changes one package.

    Packages of a family are neighbours: they are often released together, so that most mixtures which cannot be
    installed lie next to each other. Names are normalised (PEP 503).
    """
    steps = [{normalise(name): version for name, version in before.items()}]
    for each in changed_packages(before, after):
        step = {name: version for name, version in steps[-1].items() if name != each.name}
        steps.append(step | ({each.name: each.b} if each.b else {}))
    return tuple(dict(sorted(step.items())) for step in steps)
