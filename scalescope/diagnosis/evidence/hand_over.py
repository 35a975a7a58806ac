"""How long tasks waited on their worker for a thread that was free."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis.evidence.task_table import task_column
from scalescope.diagnosis.evidence.timeline import occupied_from
from scalescope.diagnosis.observation import Observation, once


@once
def by_thread(observation: Observation) -> tuple[Ints, Bools]:
    """Attempts in the order in which each thread ran them, and which of these are not the first of their thread."""
    attempts = observation.measured
    order = np.lexsort((attempts.start, attempts.thread, attempts.worker))
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = (np.diff(attempts.worker[order]) == 0) & (np.diff(attempts.thread[order]) == 0)
    return order, again


@once
def handed_over(observation: Observation) -> Floats:
    """Seconds of each attempt for which its thread was free and its worker had it, and did nothing else for it."""
    attempts = observation.measured
    assigned = np.maximum(task_column(observation, "assigned") - attempts.epoch, 0.0)
    # The thread was free once the attempt before it on that thread had ended.
    order, again = by_thread(observation)
    free = np.zeros(len(order))
    free[order[1:]] = np.where(again[1:], attempts.stop[order[:-1]], 0.0)
    joined = np.zeros(len(attempts.addresses))
    joined[attempts.members.worker] = attempts.members.joined
    since = np.maximum(np.maximum(assigned, free), joined[attempts.worker])
    done: Floats = np.maximum(occupied_from(observation) - since, 0.0)
    return done
