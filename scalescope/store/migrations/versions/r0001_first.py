"""Runs, points, trials, environments, findings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "environments",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("packages", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_environments")),
    )
    op.create_table(
        "points",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("threads_per_worker", sa.Integer(), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_points")),
    )
    op.create_table(
        "sweep_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("workload_version", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("process_started", sa.Float(precision=53), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("environment_hash", sa.Text(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["environment_hash"], ["environments.hash"], name=op.f("fk_sweep_runs_environment_hash")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep_runs")),
    )
    op.create_index(op.f("ix_sweep_runs_created_at"), "sweep_runs", ["created_at"], unique=False)
    op.create_index(op.f("ix_sweep_runs_sweep_id_created_at"), "sweep_runs", ["sweep_id", "created_at"], unique=False)
    op.create_index(op.f("ix_sweep_runs_workload_created_at"), "sweep_runs", ["workload", "created_at"], unique=False)
    op.create_table(
        "findings",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(precision=53), nullable=False),
        sa.Column("lost_s", sa.Float(precision=53), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("points", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["sweep_runs.id"], name=op.f("fk_findings_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_findings")),
    )
    op.create_index(op.f("ix_findings_code"), "findings", ["code"], unique=False)
    op.create_table(
        "trials",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("point_id", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("warmup", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("interrupted", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("real_s", sa.Float(precision=53), nullable=False),
        sa.Column("makespan_s", sa.Float(precision=53), nullable=True),
        sa.Column("elapsed_s", sa.Float(precision=53), nullable=True),
        sa.Column("work_s", sa.Float(precision=53), nullable=True),
        sa.Column("span_s", sa.Float(precision=53), nullable=True),
        sa.Column("ideal_s", sa.Float(precision=53), nullable=True),
        sa.Column("efficiency", sa.Float(precision=53), nullable=True),
        sa.Column("parallelism", sa.Float(precision=53), nullable=True),
        sa.Column("mean_parallelism", sa.Float(precision=53), nullable=True),
        sa.Column("peak_parallelism", sa.BigInteger(), nullable=True),
        sa.Column("peak_runnable", sa.BigInteger(), nullable=True),
        sa.Column("tasks", sa.BigInteger(), nullable=True),
        sa.Column("widest_stage", sa.BigInteger(), nullable=True),
        sa.Column("workers_used", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("environment_hash", sa.Text(), nullable=True),
        sa.Column("records", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["environment_hash"], ["environments.hash"], name=op.f("fk_trials_environment_hash")),
        sa.ForeignKeyConstraint(["point_id"], ["points.id"], name=op.f("fk_trials_point_id")),
        sa.ForeignKeyConstraint(["run_id"], ["sweep_runs.id"], name=op.f("fk_trials_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_trials")),
    )
    op.create_index(op.f("ix_trials_point_id"), "trials", ["point_id"], unique=False)
