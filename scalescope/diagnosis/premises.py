"""Premises of the remedies of several causes."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis.cause import Premise
from scalescope.diagnosis.evidence.held_results import HeldResults, held_results
from scalescope.diagnosis.evidence.task_table import task_column, task_needs
from scalescope.diagnosis.observation import Observation
from scalescope.model import words

ENOUGH = 1.1  # least ratio of an advised value to the present one, for the advice to be given


def _results_fit(observation: Observation) -> bool:
    held = held_results(observation)
    return held is None or not held.limit or kept_bytes(observation) <= held.workers * held.fits


def kept_results(observation: Observation) -> Floats:
    """For each attempt, the bytes of its result if no other task needs it, else 0."""
    attempts, (_, made) = observation.measured, task_needs(observation)
    found = np.where(attempts.useful, task_column(observation, "nbytes"), 0.0)
    found[made] = 0.0
    return found


def kept_bytes(observation: Observation) -> float:
    """Bytes of all results that no other task needs: these stay in memory if all work is sent at once."""
    return float(kept_results(observation).sum())


RESULTS_FIT = Premise("The results of all work that is sent at once fit into the memory of the workers.", _results_fit)


def room(observation: Observation) -> str:
    """Clause with the bytes of results, and with the memory into which they do not fit."""
    held = held_results(observation)
    assert held is not None  # only known results can fail to fit
    return f"{words.size(kept_bytes(observation))} of results do not fit into {words.size(held.workers * held.fits)}"


SEVERAL_THREADS = Premise[Observation](
    "A worker has more than one thread.", lambda observation: observation.trial.point.threads_per_worker > 1
)


def host_has(needed: float) -> Premise[Observation]:
    """Premise that the host has `needed` bytes; true where workers are elsewhere or its memory is not known."""

    def holds(observation: Observation) -> bool:
        host = observation.trial.facts.get("host") or {}
        there = [host[name] for name in ("memory_bytes", "cgroup_memory_bytes") if host.get(name)]
        elsewhere = {"127.0.0.1", "localhost", "::1", host.get("hostname")}.isdisjoint(
            observation.column("workers", "host")
        )
        return elsewhere or not there or needed <= min(there)

    return Premise(f"The host has {words.size(needed)} of memory.", holds)


def fits_on_each_worker(nbytes: float) -> Premise[Observation]:
    def holds(observation: Observation) -> bool:
        held = held_results(observation)
        return held is None or not held.limit or nbytes <= held.fits

    return Premise(f"Each worker has {words.size(nbytes)} of memory for results.", holds)


def larger_limit(held: HeldResults, limit: float) -> Premise[Observation]:
    """Premise that `limit` bytes are more than a worker has now, and that the host has as much for all workers."""
    host = host_has(held.workers * limit)
    return Premise(
        "The limit is larger than the present one, and the host has that much for all workers.",
        lambda observation: limit >= ENOUGH * held.limit and host.holds(observation),
    )
