"""Runs to be asked for, and finished ones, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scalescope.model.finding import Verdict
from scalescope.run import request
from scalescope.run.drivers import Drivers
from scalescope.run.sweep import analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.schema import RunState
from scalescope.store.store import SweepRun


def asked(sweep: Mapping[str, Any], *, records: str = "", **given: Any) -> request.RunRequest:
    """A checked run of a sweep, with what else is given."""
    return request.check({**sweep, **given}, records=records)


def finished_run(
    sweep: Mapping[str, Any], address: str, *, study: str = "", verdict: Verdict | None = None, **given: Any
) -> SweepRun:
    """A run of a sweep that has been measured, and judged unless a verdict is given."""
    checked = replace(asked(sweep, store=address, **given), study=study)
    with checked.open_store() as store:
        run, waiting = begin(checked, store)
        run_trials(Drivers(checked, run.id, store), waiting)
        if verdict is None:
            analyse(store, run.id)
        else:
            store.finish(run.id, RunState.COMPLETE, verdict)
        return store.run(run.id)
