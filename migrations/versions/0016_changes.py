"""The changes of retained messages: which topics changed, in the order in which transactions ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables, empty: no token is known, so the next request for changes gets everything."""
    op.create_table(
        "retained_changes",
        sa.Column("turn", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("topic", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "retained_changes_epochs",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("history", sa.Text, nullable=False),
    )
    op.create_table(
        "retained_changes_kept",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("turn", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
    op.add_column("session_subscriptions", sa.Column("replay_since", sa.BigInteger))
    there = sa.text("replay_since IS NOT NULL")
    op.create_index(
        "session_subscriptions_since",
        "session_subscriptions",
        ["replay_since"],
        sqlite_where=there,
        postgresql_where=there,
    )
