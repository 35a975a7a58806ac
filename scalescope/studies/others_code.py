"""A stored run may name code of another user, which a study would run as whoever asks."""

from __future__ import annotations

from scalescope.errors import OthersCode
from scalescope.model.environment import Environment
from scalescope.model.run_facts import USER
from scalescope.owner import user
from scalescope.store.store import SweepRun


def check(run: SweepRun, *, others_code: bool) -> None:
    """Refuse to run code that another user's run names, unless that is allowed; unknown users count as others."""
    who = str(run.facts.get(USER, ""))
    if others_code or who == user():
        return
    if code := _code(run):
        raise OthersCode(
            f"Run {run.id} was stored by {who or 'an unknown user'}, and names code that would run as you: {code}",
            where=run.where,
            next_step="read that code; if you trust it, add --others-code (others_code: true in a flow)",
        )


def _code(run: SweepRun) -> str:
    points = [trial.point for trial in run.trials]
    named = [run.sweep.workload] if ":" in run.sweep.workload else []
    texts = dict.fromkeys([run.sweep.environment, *(point.environment for point in points)])
    named += [text for text in texts if not Environment.parse(text).present]
    kinds = {spec.kind: spec for spec in (run.sweep.cluster, *run.sweep.clusters(points))}
    named += [f"a {kind} cluster" for kind, spec in kinds.items() if not spec.here]
    return ", ".join(named)
