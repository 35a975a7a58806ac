"""Alembic environment: how the tables came to be, revision by revision."""
