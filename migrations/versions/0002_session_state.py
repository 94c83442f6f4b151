"""Session State: Sessions, Subscriptions, deliveries, received Packet Identifiers and Will Messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables of Session State."""
    topic = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "sessions",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("username", sa.Text),
        sa.Column("listener", sa.Text, nullable=False),
        sa.Column("expiry_interval", sa.BigInteger),
        sa.Column("expires_at", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "session_subscriptions",
        sa.Column("session_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("topic_filter", topic, primary_key=True),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("no_local", sa.SmallInteger, nullable=False),
        sa.Column("retain_as_published", sa.SmallInteger, nullable=False),
        sa.Column("retain_handling", sa.SmallInteger, nullable=False),
        sa.Column("identifier", sa.Integer),
        sa.Column("replay_after", topic),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "session_messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("topic", topic, nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("retain", sa.SmallInteger, nullable=False),
        sa.Column("client_id", sa.Text),
        sa.Column("username", sa.Text),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "session_deliveries",
        sa.Column("session_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("message_id", sa.BigInteger),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("retain", sa.SmallInteger, nullable=False),
        sa.Column("identifiers", sa.Text, nullable=False),
        sa.Column("packet_identifier", sa.Integer),
        sa.Column("released", sa.SmallInteger, nullable=False),
        sa.Column("shared_filter", topic),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "session_received",
        sa.Column("session_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("packet_identifier", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wills",
        sa.Column("client_id", sa.Text, primary_key=True),
        sa.Column("username", sa.Text),
        sa.Column("topic", topic, nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("retain", sa.SmallInteger, nullable=False),
        sa.Column("delay", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
