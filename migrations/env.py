"""Alembic runs this file for every command. ``holdfast.storage.schema`` provides the open connection."""

from __future__ import annotations

from alembic import context

from holdfast.storage.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run through the broker's own commands: holdfast db upgrade")
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True, compare_server_default=True)
with context.begin_transaction():
    context.run_migrations()
