"""Findings say at which line of the user's code they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("findings", sa.Column("place", sa.JSON(), nullable=True))
