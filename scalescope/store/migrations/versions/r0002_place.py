"""Adds a column for the line of the user's code to findings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("findings", sa.Column("place", sa.JSON(), nullable=True))
