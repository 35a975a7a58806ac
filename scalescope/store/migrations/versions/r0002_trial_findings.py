"""What the records of each trial alone show to be wrong."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Trials of before have none."""
    op.add_column("trials", sa.Column("findings", sa.JSON(), nullable=False, server_default="[]"))
