"""A study: a question that needs several sweeps, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Study:
    """A question, the runs made to answer it, and the answer. Questions and results are JSON."""

    id: str  # sortable by time: `threshold-20261121-143005-ab12cd`, in UTC; a run's id begins with a digit
    kind: str  # key of `scalescope.studies.STUDIES`
    question: Mapping[str, Any]
    runs: tuple[str, ...] = ()  # ids of the runs, oldest first
    line: str = ""  # the answer in one sentence; empty until there is one
    result: Mapping[str, Any] = field(default_factory=dict)
    alarm: bool = False  # True if the answer is bad news, or missing
    follows: str = ""  # id of the run or study that led to it
    followed_by: tuple[str, ...] = ()  # ids of the studies that it led to
    created_at: str = ""  # UTC, ISO 8601
    finished_at: str = ""
    where: str = ""  # address of the store, without password
