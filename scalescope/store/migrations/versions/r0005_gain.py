"""What the remedy of a finding would bring."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Findings of before say nothing of it."""
    op.add_column("findings", sa.Column("gain", sa.JSON(), nullable=True))
