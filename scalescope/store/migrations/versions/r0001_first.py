"""The first tables. Revisions change older stores only; a new store is made from `schema`."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """No older store exists, so nothing is upgraded."""
