"""Converts the model's dataclasses to rows of the database, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from scalescope.errors import InvalidField, StoreError, UsageError
from scalescope.model.finding import Finding, Verdict
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point, digest
from scalescope.model.trial import Trial, TrialState
from scalescope.store.json_text import Unreadable, clean
from scalescope.store.schema import EnvironmentRow, FindingRow, PointRow, RunRow, StoreBase, StudyRow, TrialRow

logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
Named = TypeVar("Named", "RunRow", "StudyRow")
INTERRUPTED = "interrupted"  # name of a fact of a trial that was stopped from outside, and runs again on resume
PACKAGES = "packages"  # name of the fact with the packages; each distinct list is stored once
LARGEST = 2**63  # integers of at least this size do not fit into a column, only into JSON


def split_packages(facts: Mapping[str, Any]) -> tuple[dict[str, Any], EnvironmentRow | None]:
    """Split facts into the rest and a row for the package list (None without a list)."""
    packages = facts.get(PACKAGES)
    if not isinstance(packages, Mapping | list):
        return dict(facts), None
    rest = {name: value for name, value in facts.items() if name != PACKAGES}
    return rest, EnvironmentRow(hash=digest(packages), packages=packages)


def join_packages(row: TrialRow | RunRow) -> dict[str, Any]:
    return {**row.facts, PACKAGES: row.environment.packages} if row.environment else row.facts


def point_row(point: Point) -> PointRow:
    return PointRow(
        id=point.id,
        workers=point.workers,
        threads_per_worker=point.threads_per_worker,
        items=point.items if point.items is not None and point.items < LARGEST else None,
        spec=point.to_mapping(),
    )


def trial_row(run_id: str, trial: Trial, *, saved_at: datetime, records: str) -> TrialRow:
    facts, environment = split_packages(trial.facts)
    return TrialRow(
        run_id=run_id,
        key=trial.key,
        point_id=trial.point.id,
        repeat=trial.repeat,
        warmup=trial.warmup,
        state=trial.state.value,
        interrupted=trial.facts.get(INTERRUPTED) is True,
        reason=clean(trial.reason),
        started_at=trial.started_at,
        saved_at=saved_at,
        real_s=trial.real_s,
        metrics=trial.metrics.to_mapping() if trial.metrics else None,
        facts=facts,
        warnings=list(trial.warnings),
        findings=[finding.to_mapping() for finding in trial.findings],
        environment_hash=environment.hash if environment else None,
        records=records,
    )


def trial(row: TrialRow, *, records: str) -> Trial:
    """The trial of a row; `records` is the full address of its records."""
    with reading(f"trial {row.key} of run {row.run_id}", row, row.point, row.environment):
        return Trial(
            key=row.key,
            point=Point.from_mapping(row.point.spec),
            repeat=row.repeat,
            warmup=row.warmup,
            state=TrialState(row.state),
            reason=row.reason,
            metrics=Metrics.from_mapping(row.metrics) if row.metrics is not None else None,
            started_at=row.started_at,
            real_s=row.real_s,
            facts=join_packages(row),
            warnings=tuple(row.warnings),
            findings=tuple(map(Finding.from_mapping, row.findings)),
            records=records,
        )


@contextmanager
def reading(what: str, *rows: StoreBase | None) -> Iterator[None]:
    """Turn errors of reading rows into the model into a `StoreError`."""
    try:
        for row in rows:
            for column in row.__table__.columns if row is not None else ():
                if isinstance(value := getattr(row, column.key), Unreadable):
                    raise ValueError(f"column {column.name}: {value.problem}")
        yield
    except (InvalidField, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"Could not read {what}: {error}",
            cause="The row in the database is damaged, or a newer Scalescope wrote it.",
            next_step="Restore the database from a backup, or go on without this row.",
        ) from error


def readable(found: Iterable[T], read: Callable[[T], R]) -> list[R]:
    """The rows that can be read; a warning shows the first unreadable row and the number of such rows."""
    result, errors = [], []
    for row in found:
        try:
            result.append(read(row))
        except StoreError as error:
            errors.append(error)
    if errors:
        left = len(errors) - 1
        more = f", as {'is' if left == 1 else 'are'} {left:,} more" if left else ""
        logger.warning("%s\nThis row is left out%s.", errors[0], more)
    return result


def one_of(found: Sequence[Named], reference: str, what: str, where: str) -> Named | None:
    """The row with this id, or the only one whose id starts with it, or None; `UsageError` if there are several."""
    exact = [row for row in found if row.id == reference]
    if len(found) > 1 and not exact:
        text = f"Several {what} begin with {reference!r}: {listed(found)}"
        raise UsageError(text, where=where, next_step="Give more of the id.")
    return next(iter(exact or found), None)


def listed(found: Iterable[RunRow | StudyRow]) -> str:
    ids = [row.id for row in found]
    return ", ".join(ids[:5] + ["..."] * (len(ids) > 5))


def finding_rows(run_id: str, verdict: Verdict) -> list[FindingRow]:
    return [
        FindingRow(run_id=run_id, position=position, **finding.to_mapping() | _texts(finding))
        for position, finding in enumerate(verdict.findings)
    ]


def _texts(finding: Finding) -> dict[str, str]:
    return {
        "severity": finding.severity.value,
        "summary": clean(finding.summary),
        "remedy": clean(finding.remedy),
    }


def verdict(row: RunRow) -> Verdict | None:
    if row.verdict is None:
        return None
    return Verdict(row.verdict, tuple(readable(row.findings, _finding)))


def _finding(row: FindingRow) -> Finding:
    with reading(f"finding {row.position} of run {row.run_id}", row):
        return Finding.from_mapping({name: getattr(row, name) for name in Finding.__dataclass_fields__})
