"""Adds a column for the tried patch to findings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("findings", sa.Column("patch", sa.JSON(), nullable=True))
