"""Clusters: a table for the members, with their leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cluster_members",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("protocol_min", sa.Integer, nullable=False),
        sa.Column("protocol_max", sa.Integer, nullable=False),
        sa.Column("config_hash", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
    )
