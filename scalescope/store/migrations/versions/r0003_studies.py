"""Studies: questions that own runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Runs of before belong to none."""
    op.create_table(
        "studies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("question", sa.JSON(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("alarm", sa.Boolean(), nullable=False),
        sa.Column("follows", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
    )
    op.create_index("ix_studies_question_id_created_at", "studies", ["question_id", "created_at"])
    op.create_index("ix_studies_follows", "studies", ["follows"])
    # No foreign key: SQLite could not add one to a table that is there.
    op.add_column("sweep_runs", sa.Column("study_id", sa.Text(), nullable=True))
    op.create_index("ix_sweep_runs_study_id", "sweep_runs", ["study_id"])
