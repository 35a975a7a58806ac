"""Why worker time was lost: every cause, each declared in one of the modules here (docs/adding-a-cause.md).

A cause is not named unless its own evidence is there; several can hold at once. All modules of this package are
imported, so that a new one needs no entry in a list.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.diagnosis.registry import all_causes
from scalescope.diagnosis.sweep_case import SweepCause
from scalescope.model.finding import Finding

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

BY_CODE = {cause.code: cause for cause in all_causes()}
OF_TRIALS = tuple(cause for cause in all_causes() if isinstance(cause, TrialCause))
OF_SWEEPS = tuple(cause for cause in all_causes() if isinstance(cause, SweepCause))


def find(observation: Observation) -> tuple[Finding, ...]:
    """All findings of one trial, the worst first: by severity, then by worker time lost, then by confidence."""
    found = {cause: finding for cause in OF_TRIALS if (finding := cause.look(observation)) is not None}
    ruled_out = {code for cause in found for code in cause.rules_out}
    return tuple(sorted((each for each in found.values() if each.code not in ruled_out), key=Finding.rank))
