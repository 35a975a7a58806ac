"""The tables of a store. A change here needs a new revision in `migrations/versions`, and a new `REVISION`.

```
studies ──< sweep_runs ──< trials >── points          a point is the same row in every run
                 │            └────── environments    package lists, each once
                 └──< findings
decisions                                             about series of nights
```
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Float, ForeignKey, Index, Integer, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

REVISION = "0003"  # the newest revision in `migrations/versions`
VERSION_TABLE = "scalescope_version"  # not Alembic's default, which Prefect uses: both may share a database


class RunState(StrEnum):
    """State of a run. Only a complete run is never resumed."""

    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class UtcDateTime(TypeDecorator[datetime]):
    """A timezone-aware time in UTC, also on databases without time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StoreBase(DeclarativeBase):
    """All tables. Constraints have names, so that a migration can change them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own protocol
        datetime: UtcDateTime(),
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
        float: Float(53),
        str: Text(),
    }


class EnvironmentRow(StoreBase):
    """A package list of trials and runs."""

    __tablename__ = "environments"

    hash: Mapped[str] = mapped_column(primary_key=True)
    packages: Mapped[Any] = mapped_column(JSON(none_as_null=True))


class RunRow(StoreBase):
    """One run of a sweep, perhaps resumed several times."""

    __tablename__ = "sweep_runs"
    __table_args__ = (Index(None, "sweep_id", "created_at"), Index(None, "workload", "created_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    sweep_id: Mapped[str]
    workload: Mapped[str]
    workload_version: Mapped[int] = mapped_column(Integer)
    spec: Mapped[dict[str, Any]]
    planned: Mapped[int] = mapped_column(Integer)
    state: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime(), index=True)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    owner: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(BigInteger)
    process_started: Mapped[float]
    heartbeat_at: Mapped[datetime]
    verdict: Mapped[str | None]
    environment_hash: Mapped[str | None] = mapped_column(ForeignKey("environments.hash"))
    facts: Mapped[dict[str, Any]]
    study_id: Mapped[str | None] = mapped_column(index=True)

    environment: Mapped[EnvironmentRow | None] = relationship()
    trials: Mapped[list[TrialRow]] = relationship(order_by="TrialRow.saved_at, TrialRow.key", viewonly=True)
    findings: Mapped[list[FindingRow]] = relationship(order_by="FindingRow.position", cascade="all, delete-orphan")


class StudyRow(StoreBase):
    """A question and its answer; its runs name it in `study_id`."""

    __tablename__ = "studies"
    __table_args__ = (Index(None, "question_id", "created_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    question_id: Mapped[str]
    question: Mapped[dict[str, Any]]
    line: Mapped[str]
    result: Mapped[dict[str, Any]]
    alarm: Mapped[bool]
    follows: Mapped[str] = mapped_column(index=True)
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class DecisionRow(StoreBase):
    """A person's decision about series of nights (`scalescope.model.decision`)."""

    __tablename__ = "decisions"

    history: Mapped[str] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(primary_key=True)
    mutes: Mapped[bool] = mapped_column(primary_key=True)
    until: Mapped[str]
    reason: Mapped[str]
    who: Mapped[str]
    created_at: Mapped[datetime]


class PointRow(StoreBase):
    """A combination of axis values; the same row for every run that visits it."""

    __tablename__ = "points"

    id: Mapped[str] = mapped_column(primary_key=True)
    workers: Mapped[int] = mapped_column(Integer)
    threads_per_worker: Mapped[int] = mapped_column(Integer)
    items: Mapped[int | None] = mapped_column(BigInteger)
    spec: Mapped[dict[str, Any]]


class TrialRow(StoreBase):
    """One measured run of a point."""

    __tablename__ = "trials"

    run_id: Mapped[str] = mapped_column(ForeignKey("sweep_runs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    point_id: Mapped[str] = mapped_column(ForeignKey("points.id"), index=True)
    repeat: Mapped[int] = mapped_column(Integer)
    warmup: Mapped[bool]
    state: Mapped[str]
    interrupted: Mapped[bool]
    reason: Mapped[str]
    started_at: Mapped[str]
    saved_at: Mapped[datetime]
    real_s: Mapped[float]
    metrics: Mapped[dict[str, Any] | None]
    facts: Mapped[dict[str, Any]]
    warnings: Mapped[list[Any]]
    findings: Mapped[list[Any]]
    environment_hash: Mapped[str | None] = mapped_column(ForeignKey("environments.hash"))
    records: Mapped[str]

    point: Mapped[PointRow] = relationship()
    environment: Mapped[EnvironmentRow | None] = relationship()


class FindingRow(StoreBase):
    """One finding of a run's verdict, worst first."""

    __tablename__ = "findings"

    run_id: Mapped[str] = mapped_column(ForeignKey("sweep_runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    code: Mapped[str] = mapped_column(index=True)
    severity: Mapped[str]
    summary: Mapped[str]
    remedy: Mapped[str]
    confidence: Mapped[float]
    lost_s: Mapped[float]
    link: Mapped[str]
    evidence: Mapped[list[Any]]
    points: Mapped[list[Any]]
    gain: Mapped[dict[str, Any] | None]
    place: Mapped[dict[str, Any] | None]
    patch: Mapped[dict[str, Any] | None]
