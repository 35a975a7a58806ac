"""The first tables. Revisions change older stores only: a new one is made from `schema`."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
