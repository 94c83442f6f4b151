"""Clusters: tables for the messages that cross from one member to others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_TopicName = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "cluster_messages",
        sa.Column("origin", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("targets", sa.Text, nullable=False),
        sa.Column("share", _TopicName),
        sa.Column("revision", sa.BigInteger),
        sa.Column("topic", _TopicName, nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("retain", sa.SmallInteger, nullable=False),
        sa.Column("replaces", sa.SmallInteger, nullable=False),
        sa.Column("client_id", sa.Text),
        sa.Column("username", sa.Text),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "cluster_cursors",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("origin", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cluster_runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("target", sa.SmallInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("cluster_runs_targets", "cluster_runs", ["target", "id"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE cluster_runs SET UNLOGGED")
