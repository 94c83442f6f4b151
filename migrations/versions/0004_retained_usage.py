"""Totals of the retained messages by client and by topic, for quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an empty table. The broker fills it when a quota is configured."""
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "retained_usage",
        sa.Column("scope", text, primary_key=True),
        sa.Column("subject", text, primary_key=True),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("counted_to", text),
        sqlite_with_rowid=False,
    )
