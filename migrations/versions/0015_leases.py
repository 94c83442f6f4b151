"""Retained messages that stay only while their publisher does."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table: no leases."""
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "retained_leases",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("topic", name, primary_key=True),
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("username", sa.Text),
        sa.Column("term", sa.Text, nullable=False),
        sa.Column("session", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
