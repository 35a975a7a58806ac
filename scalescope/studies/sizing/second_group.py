"""Proposes a second group of workers for a stage that has few tasks and needs more memory than all other stages."""

from __future__ import annotations

import math

import numpy as np

from scalescope.diagnosis.evidence.held_results import most_on_one_worker
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.observation import Observation
from scalescope.studies.sizing.choice import Configuration, SecondGroup
from scalescope.studies.sizing.memory import MeasuredMemory

NARROW = 0.25  # a stage is narrow if its tasks are at most this share of the workers
SAVES = 0.6  # most memory of a worker without the stage, as a share of the memory it needs with the stage


def second_group(
    observation: Observation, memory: MeasuredMemory, chosen: Configuration, there: float
) -> SecondGroup | None:
    """A second group of workers for a narrow stage; None if it saves too little, or process memory is unknown.

    Also None with fewer than four workers. `there`: bytes of memory that each worker may have.
    """
    names, place = task_prefixes(observation)
    tasks = np.bincount(place, minlength=len(names))
    narrow = np.flatnonzero(tasks <= max(NARROW * chosen.workers, 1)).tolist()
    if not memory.known or chosen.workers < 1 / NARROW:
        return None
    found = []
    for each in narrow:
        rest = memory.limit(most_on_one_worker(observation, without=place == each), chosen.threads, there)
        found.append((math.ceil(rest / 2**20), names[each], int(tasks[each])))
    others_mb, prefix, count = min(found, default=(math.inf, "", 0))
    if others_mb > SAVES * chosen.memory_mb:
        return None
    whole = memory.limit(most_on_one_worker(observation), 1, there)
    return SecondGroup(prefix, count, count, math.ceil(whole / 2**20), int(others_mb))
