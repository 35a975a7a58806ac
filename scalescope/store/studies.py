"""Studies in the store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from scalescope.errors import StoreError, UsageError
from scalescope.model.study import Study
from scalescope.model.sweep import digest
from scalescope.store import row_conversion
from scalescope.store.json_text import clean
from scalescope.store.schema import RunRow, StudyRow

Transaction = Callable[[str], AbstractContextManager[Session]]
_NEWEST = select(StudyRow).order_by(StudyRow.created_at.desc(), StudyRow.id.desc())


class Studies:
    """The studies of a store (`Store.studies`)."""

    def __init__(self, read: Transaction, write: Transaction, where: str) -> None:
        self._read = read
        self._write = write
        self._where = where

    def begin(self, kind: str, question: Mapping[str, Any], *, follows: str = "", fresh: bool = False) -> Study:
        """Begin a study, or continue the newest one of the same question if that has no answer yet."""
        question_id = digest([kind, question])
        with self._write("begin a study") as session:
            same = _NEWEST.where(StudyRow.question_id == question_id).limit(1)
            row = None if fresh else session.scalars(same).one_or_none()
            if row is None or row.finished_at is not None:
                now = now_of(session)
                row = StudyRow(
                    id=f"{kind}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
                    kind=kind,
                    question_id=question_id,
                    question=dict(question),
                    line="",
                    result={},
                    alarm=False,
                    follows=follows,
                    created_at=now,
                    finished_at=None,
                )
                session.add(row)
                session.flush()
            return self._study(session, row)

    def finish(self, study_id: str, line: str, result: Mapping[str, Any], *, alarm: bool) -> None:
        """Record the answer: `line` in one sentence, `result` in full as JSON. `alarm`: bad news, or no answer."""
        with self._write("finish a study") as session:
            row = self._row(session, study_id)
            row.line, row.result, row.alarm = clean(line), dict(result), alarm
            row.finished_at = now_of(session)

    def amend(self, study_id: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Study:
        """Replace the result of a study, finished or not, by `change(result)`, in one transaction."""
        with self._write("change a study") as session:
            row = self._row(session, study_id)
            row.result = dict(change(row.result))
            return self._study(session, row)

    def newest(self, *, limit: int = 50, kind: str | None = None) -> list[Study]:
        """The newest studies, newest first; only those of `kind` if given."""
        with self._read("read the studies") as session:
            newest = _NEWEST if kind is None else _NEWEST.where(StudyRow.kind == kind)
            return row_conversion.readable(session.scalars(newest.limit(limit)), partial(self._study, session))

    def get(self, reference: str) -> Study:
        """One study, by its id, the start of its id, or its kind (the newest); raises `UsageError` if there is none."""
        with self._read("read a study") as session:
            if reference.isalpha():
                found = session.scalars(_NEWEST.where(StudyRow.kind == reference).limit(1)).all()
            else:
                begins = StudyRow.id.startswith(clean(reference), autoescape=True)
                found = session.scalars(_NEWEST.where(begins).limit(6)).all()
            if row := row_conversion.one_of(found, reference, "studies", self._where):
                return self._study(session, row)
        next_step = "`scalescope show list` lists the studies."
        raise UsageError(f"There is no study {reference!r}", where=self._where, next_step=next_step)

    def following(self, reference: str) -> tuple[str, ...]:
        """Ids of the studies whose `follows` is this run or study, oldest first."""
        with self._read("read the studies") as session:
            return _following(session, reference)

    def _row(self, session: Session, study_id: str) -> StudyRow:
        row = session.get(StudyRow, study_id)
        if row is None:
            raise StoreError(f"There is no study {study_id!r}", where=self._where, cause="It was deleted meanwhile.")
        return row

    def _study(self, session: Session, row: StudyRow) -> Study:
        runs = select(RunRow.id).where(RunRow.study_id == row.id).order_by(RunRow.created_at, RunRow.id)
        with row_conversion.reading(f"study {row.id}", row):
            return Study(
                id=row.id,
                kind=row.kind,
                question=row.question,
                runs=tuple(session.scalars(runs)),
                line=row.line,
                result=row.result,
                alarm=row.alarm,
                follows=row.follows,
                followed_by=_following(session, row.id),
                created_at=row.created_at.isoformat(),
                finished_at=row.finished_at.isoformat() if row.finished_at else "",
                where=self._where,
            )


def is_study(reference: str) -> bool:
    """Whether a reference names a study, by kind or id; ids of runs begin with a digit."""
    return reference[:1].isalpha() and not reference.startswith("latest")


def _following(session: Session, reference: str) -> tuple[str, ...]:
    found = select(StudyRow.id).where(StudyRow.follows == reference).order_by(StudyRow.created_at, StudyRow.id)
    return tuple(session.scalars(found))


def now_of(session: Session) -> datetime:
    """The present time: on PostgreSQL by the server's clock, which all hosts share."""
    if session.get_bind().dialect.name == "postgresql":
        now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
        return now.astimezone(UTC)
    return datetime.now(UTC)
