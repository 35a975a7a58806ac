"""A study: a question that needs several sweeps, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StudyKind(StrEnum):
    """What is asked.

    `threshold`: at which value of an axis a metric changes regime. `release`: which release of a package moved a metric
    or introduced a finding. `comparison`: whether B is slower than A. `nightly`: what of a suite got worse since
    earlier nights.
    """

    THRESHOLD = "threshold"
    RELEASE = "release"
    COMPARISON = "comparison"
    NIGHTLY = "nightly"


@dataclass(frozen=True)
class Study:
    """A question, the runs that were made for it, and what came of it.

    Attributes:
        id: Sortable by time, and told from a run's by its first word: `threshold-20261121-143005-ab12cd`, in UTC.
        kind: What is asked.
        question: All that was asked, as JSON carries it.
        runs: Ids of its runs, oldest first.
        line: The answer in one sentence; empty until there is one.
        result: The answer in full, as JSON carries it; empty until there is one.
        alarm: Whether the answer is bad news, or there is none.
        follows: Id of the run or study that led to it; may be empty.
        followed_by: Ids of the studies that it led to.
        created_at: When it first began; UTC, ISO 8601.
        finished_at: Empty while it has no answer.
        where: Address of the store, without password.
    """

    id: str
    kind: StudyKind
    question: Mapping[str, Any]
    runs: tuple[str, ...] = ()
    line: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    alarm: bool = False
    follows: str = ""
    followed_by: tuple[str, ...] = ()
    created_at: str = ""
    finished_at: str = ""
    where: str = ""
