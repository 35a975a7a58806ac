"""Requirements that old releases of packages have but do not declare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from scalescope.model.environment import normalise

DRIVER = "distributed"  # package that every driver needs


@dataclass(frozen=True)
class ExtraRequirement:
    """A requirement that old releases of a package do not declare: another package, below some version."""

    package: str  # package whose old releases have the requirement
    before: str  # first release of `package` that works without the requirement, found by trials
    name: str  # package that the old releases require
    below: str  # first version of `name` that does not work
    install: bool = False  # True: install `name`; False: only limit its version if another package requires it

    @property
    def requirement(self) -> str:
        return f"{self.name}<{self.below}"


NEEDS = (
    # Old Beam imports pkg_resources without requiring setuptools, which removed it in 82 and warns from 80 on.
    ExtraRequirement("apache-beam", "2.51.0", "setuptools", "80", install=True),
    # Old dask uses names that NumPy 2 removed (np.unicode_, np.compat), and does not limit NumPy.
    ExtraRequirement("dask", "2023.9.0", "numpy", "2"),
)


def needed(resolved: Mapping[str, str], asked: Iterable[str]) -> list[ExtraRequirement]:
    """Requirements to add to a resolution (versions by normalised name), except for packages in `asked`."""
    asked = set(asked)
    return [
        need
        for need in NEEDS
        if need.package in resolved
        and need.name not in asked
        and _release(resolved[need.package]) < _release(need.before)
        and (_release(resolved[need.name]) >= _release(need.below) if need.name in resolved else need.install)
    ]


def package_name(requirement: str) -> str:
    return normalise(re.split(r"[\[=!<>~;@ ]", requirement, maxsplit=1)[0])


def _release(version: str) -> Version:
    return Version(Version(version).base_version)
