"""The stages of a trial: a name for each, and a table of items, tasks and durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Ints
from scalescope.analysis.measure import Stage, peak
from scalescope.diagnosis.observation import Observation
from scalescope.model.words import plural, seconds
from scalescope.report.table import ReportTable

MOST_STAGES = 60


@dataclass(frozen=True)
class Groups:
    """The task groups of a trial, for charts and tables."""

    stages: tuple[Stage, ...]  # stages in the order in which they began
    titles: dict[str, str]  # a short name for each task group
    names: tuple[str, ...]  # task groups
    code: Ints  # for each attempt, the index of its group in `names`

    @classmethod
    def of(cls, stages: tuple[Stage, ...], attempts: Attempts) -> Groups:
        """The groups of all attempts; a group without a finished task has no stage."""
        index: dict[str, int] = {}
        for group in attempts.group:
            index.setdefault(group, len(index))
        code = np.fromiter(map(index.__getitem__, attempts.group), np.int64, len(attempts.group))
        return cls(stages, _titles(stages), tuple(index), code)

    def largest(self, count: int) -> list[Stage]:
        """The stages with the most work, the largest first."""
        return sorted(self.stages, key=lambda stage: -stage.work_s)[:count]

    def renumbered(self, stages: Sequence[Stage], other: int) -> Ints:
        """For each attempt, the index of its stage in `stages`, or `other`."""
        place = {stage.group: i for i, stage in enumerate(stages)}
        return np.array([place.get(name, other) for name in self.names], np.int64)[self.code]


def _titles(stages: Sequence[Stage], limit: int = 60) -> dict[str, str]:
    """A name for each task group: its prefix, with the end of its token if several have the same prefix."""
    of_prefix = Counter(stage.prefix for stage in stages)
    names = {
        stage.group: stage.prefix if of_prefix[stage.prefix] == 1 else f"{stage.prefix} …{stage.group[-6:]}"
        for stage in stages
    }
    return {group: name if len(name) <= limit else name[: limit - 8] + "…" + name[-7:] for group, name in names.items()}


def table(seen: Observation, attempts: Attempts, groups: Groups) -> ReportTable:
    """A row per stage: items, tasks, peak parallelism and durations."""
    items = seen.trial.point.items
    kept = sorted(groups.largest(MOST_STAGES), key=lambda stage: stage.begin_s)
    codes = groups.renumbered(kept, -1)
    codes[~attempts.useful] = -1
    order = np.argsort(codes, kind="stable")
    begins = np.searchsorted(codes[order], np.arange(len(kept) + 1))
    cells = []
    for i, stage in enumerate(kept):
        own = order[begins[i] : begins[i + 1]]
        start, stop = attempts.start[own], attempts.stop[own]
        p50, p99 = np.percentile(stop - start, (50, 99))
        cells.append(
            (
                groups.titles[stage.group],
                *([f"{items / stage.tasks:,.3g}"] if items is not None else []),
                f"{stage.tasks:,}",
                f"{stage.workers:,}",
                f"{peak(start, stop):,}",
                *(seconds(float(value)) for value in (p50, p99, stage.longest_s, stage.work_s)),
                f"{seconds(stage.begin_s)}–{seconds(stage.end_s)}",
            )
        )
    heads = ["stage", *(["items per task"] if items is not None else []), "tasks", "workers", "most at once"]
    heads += ["median s", "p99 s", "longest s", "work s", "from–to s"]
    left = len(groups.stages) - len(kept)
    notice = f"Stages with less work that are left out: {left:,}." if left else ""
    return ReportTable.of(f"{_flow(seen)}stages in the order in which they began", heads, cells, notice=notice)


def _flow(seen: Observation) -> str:
    metrics, items = seen.metrics, seen.trial.point.items
    if metrics is None:
        return "The "
    parts = [] if items is None else [plural(items, "item")]
    parts += [plural(metrics.widest_stage, "partition") + " in the widest stage", plural(metrics.tasks, "task")]
    return " → ".join(parts) + "; "
