"""Alembic runs this on the connection and in the transaction that `scalescope.store.migrate` holds."""

from __future__ import annotations

from alembic import context

from scalescope.store.schema import VERSION_TABLE, StoreBase

# Revisions are written by hand; the test that compares tables and migrations prints what is missing.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=StoreBase.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite cannot alter a column in place
)
with context.begin_transaction():
    context.run_migrations()
