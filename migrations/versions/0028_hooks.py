"""Hooks: a table for the place up to which each has delivered the changes of retained messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "hook_positions",
        sa.Column("hook", sa.Text, primary_key=True),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("node", sa.SmallInteger, nullable=False),
        sa.Column("claimed_until", sa.BigInteger, nullable=False),
    )
