"""Results of the sweep of a workload in a copy: its trial, timed by the cluster's clock, and its findings."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.analysis.difference import Account
from scalescope.diagnosis.account import account
from scalescope.diagnosis.observation import Observation
from scalescope.fixing.outcome import Guarded
from scalescope.model.finding import Finding
from scalescope.model.trial import Trial
from scalescope.store.store import Store

LIMIT_S = 600.0  # real seconds after which a sweep is stopped


def address(guarded: Guarded) -> str:
    """The store of the sweep in a copy."""
    return f"sqlite:///{guarded.file('store')}/store.db"


def trial_of(guarded: Guarded) -> tuple[Trial, Sequence[Finding], Account]:
    """The valid trial, the findings about it, and the account of its thread-seconds."""
    with Store.open(address(guarded)) as store:
        run = store.run()
        (trial,) = run.trials
        seen = Observation.of(trial, store.tables(trial))
    assert run.verdict is not None
    return trial, run.verdict.findings, account(seen)
