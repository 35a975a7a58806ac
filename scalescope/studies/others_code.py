"""Checks stored runs before a study runs their code, because another user's code would run with the caller's rights."""

from __future__ import annotations

from scalescope.errors import InvalidField, OthersCode
from scalescope.model.environment import Environment
from scalescope.model.run_facts import USER
from scalescope.model.trial import ran_what
from scalescope.owner import user
from scalescope.store.store import SweepRun


def check(run: SweepRun, *, others_code: bool) -> None:
    """Refuse code that another user's run names, unless `others_code` is set; an unknown user counts as another."""
    who = str(run.facts.get(USER, ""))
    if others_code or who == user():
        return
    if code := _code(run):
        raise OthersCode(
            f"Run {run.id} was stored by {who or 'an unknown user'}; its code would run with your rights: {code}",
            where=run.where,
            next_step="read that code; if you trust it, add --others-code (others_code: true in a flow)",
        )


def check_can_run_again(run: SweepRun) -> None:
    """Refuse the record of a script, a block or a cluster, which names no workload to run."""
    if what := ran_what(run.trials):
        raise InvalidField(
            "run",
            run.id,
            f"a run of a sweep; the record of a {what} names no workload to run again",
            next_step="give a function as the workload, such as -w FILE.py:FUNCTION -a workers=1,2,4; "
            f"or scalescope predict {run.id}",
        )


def _code(run: SweepRun) -> str:
    points = [trial.point for trial in run.trials]
    named = [run.sweep.workload] if ":" in run.sweep.workload else []
    texts = dict.fromkeys([run.sweep.environment, *(point.environment for point in points)])
    named += [text for text in texts if not Environment.parse(text).present]
    kinds = {spec.kind: spec for spec in (run.sweep.cluster, *run.sweep.clusters(points))}
    named += [f"a {kind} cluster" for kind, spec in kinds.items() if not spec.here]
    return ", ".join(named)
