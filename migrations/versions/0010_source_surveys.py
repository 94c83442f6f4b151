"""The record of the last survey of the publishers of retained messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, empty: the next start surveys all messages."""
    op.create_table(
        "source_surveys",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
