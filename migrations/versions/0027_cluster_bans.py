"""Clusters: a table for the bans that count at all members."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cluster_bans",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("who_hash", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("ban_json", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
