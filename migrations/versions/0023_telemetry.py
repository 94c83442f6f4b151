"""Telemetry: a table for Application Messages without RETAIN, its state, and a view."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_COLUMNS = "seq, topic, payload, qos, client_id, username, received_at, expires_at, size, properties_json"


def upgrade() -> None:
    """Make the tables and the view."""
    op.create_table(
        "telemetry",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("topic", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("client_id", sa.Text),
        sa.Column("username", sa.Text),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("properties_json", sa.Text),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_index("telemetry_topics", "telemetry", ["topic", "seq"])
    op.create_table(
        "telemetry_state",
        sa.Column(
            "id", sa.SmallInteger, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False
        ),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO telemetry_state VALUES (1, 0, 0, 0)")
    op.execute(f"CREATE VIEW telemetry_messages AS SELECT {_COLUMNS} FROM telemetry")  # noqa: S608 - constants
