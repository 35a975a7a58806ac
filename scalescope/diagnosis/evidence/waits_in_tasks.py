"""Waits of tasks in calls of distributed or Prefect, during which they hold their threads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scalescope.diagnosis.evidence.prefect_tasks import waits
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.observation import Observation
from scalescope.model.standstill import RESULTS


def waits_for_others(observation: Observation) -> list[Mapping[str, Any]]:
    """Waits of tasks that kept their threads, without waits for tasks that they sent."""
    own = RESULTS if submissions(observation).nested_graphs else ()
    return [wait for wait in waits(observation) if waited_for(wait) not in own]


def waited_for(wait: Mapping[str, Any]) -> str:
    """The class that was waited for, such as `Lock`."""
    return re.split(r"[.(]", str(wait["what"]), maxsplit=1)[0]
