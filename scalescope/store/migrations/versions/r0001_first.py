"""All tables. Names of constraints and indexes follow the naming convention of `schema`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _text(name: str, *constraints: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), *constraints, **{"nullable": False, **options})


def _time(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), **{"nullable": False, **options})


def _json(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(), **{"nullable": False, **options})


def _number(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, **{"nullable": False, **options})


def upgrade() -> None:
    op.create_table("environments", _text("hash", primary_key=True), _json("packages"))
    op.create_table(
        "points",
        _text("id", primary_key=True),
        _number("workers", sa.Integer()),
        _number("threads_per_worker", sa.Integer()),
        _number("items", sa.BigInteger(), nullable=True),
        _json("spec"),
    )
    op.create_table(
        "studies",
        _text("id", primary_key=True),
        _text("kind"),
        _text("question_id"),
        _json("question"),
        _text("line"),
        _json("result"),
        sa.Column("alarm", sa.Boolean(), nullable=False),
        _text("follows", index=True),
        _time("created_at"),
        _time("finished_at", nullable=True),
        sa.Index(None, "question_id", "created_at"),
    )
    op.create_table(
        "decisions",
        _text("history", primary_key=True),
        _text("what", primary_key=True),
        sa.Column("mutes", sa.Boolean(), primary_key=True, nullable=False),
        _text("until"),
        _text("reason"),
        _text("who"),
        _time("created_at"),
    )
    op.create_table(
        "sweep_runs",
        _text("id", primary_key=True),
        _text("sweep_id"),
        _text("workload"),
        _number("workload_version", sa.Integer()),
        _json("spec"),
        _number("planned", sa.Integer()),
        _text("state"),
        _time("created_at", index=True),
        _time("started_at"),
        _time("finished_at", nullable=True),
        _text("owner"),
        _text("host"),
        _number("pid", sa.BigInteger()),
        _number("process_started", sa.Float(53)),
        _time("heartbeat_at"),
        _text("verdict", nullable=True),
        _text("environment_hash", sa.ForeignKey("environments.hash"), nullable=True),
        _json("facts"),
        _text("study_id", nullable=True, index=True),
        sa.Index(None, "sweep_id", "created_at"),
        sa.Index(None, "workload", "created_at"),
    )
    op.create_table(
        "findings",
        _text("run_id", sa.ForeignKey("sweep_runs.id", ondelete="CASCADE"), primary_key=True),
        _number("position", sa.Integer(), primary_key=True, autoincrement=False),
        _text("code", index=True),
        _text("severity"),
        _text("summary"),
        _text("remedy"),
        _number("confidence", sa.Float(53)),
        _number("lost_s", sa.Float(53)),
        _text("link"),
        _json("evidence"),
        _json("points"),
        _json("gain", nullable=True),
    )
    op.create_table(
        "trials",
        _text("run_id", sa.ForeignKey("sweep_runs.id", ondelete="CASCADE"), primary_key=True),
        _text("key", primary_key=True),
        _text("point_id", sa.ForeignKey("points.id"), index=True),
        _number("repeat", sa.Integer()),
        sa.Column("warmup", sa.Boolean(), nullable=False),
        _text("state"),
        sa.Column("interrupted", sa.Boolean(), nullable=False),
        _text("reason"),
        _text("started_at"),
        _time("saved_at"),
        _number("real_s", sa.Float(53)),
        _json("metrics", nullable=True),
        _json("facts"),
        _json("warnings"),
        _json("findings"),
        _text("environment_hash", sa.ForeignKey("environments.hash"), nullable=True),
        _text("records"),
    )
