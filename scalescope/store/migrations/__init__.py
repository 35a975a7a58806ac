"""Alembic environment: the revisions that upgrade older tables."""
