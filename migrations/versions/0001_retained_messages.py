"""Retained messages, the store's meta row, and the view for plain SQL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NOW = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
_VIEW = """
CREATE VIEW retained_messages AS
SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, revision, properties_json
FROM retained
WHERE tombstone = 0 AND (expires_at IS NULL OR expires_at > {now})
"""


def upgrade() -> None:
    """Build the first schema."""
    topic = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "retained",
        sa.Column("topic", topic, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("levels", sa.Integer, nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("tombstone", sa.SmallInteger, nullable=False),
        sa.Column("client_id", sa.Text),
        sa.Column("username", sa.Text),
        sa.Column("prefix3", sa.LargeBinary, nullable=False),
        sa.Column("prefix5", sa.LargeBinary, nullable=False),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("properties_json", sa.Text),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    for name, column, where in (
        ("retained_expiry", "expires_at", "expires_at IS NOT NULL"),
        ("retained_tombstones", "stored_at", "tombstone = 1"),
    ):
        op.create_index(name, "retained", [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_table("retained_levels", sa.Column("levels", sa.Integer, primary_key=True, autoincrement=False))
    meta = op.create_table(
        "store_meta",
        sa.Column("id", sa.SmallInteger, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True,
                  autoincrement=False),
        sa.Column("revision_mark", sa.BigInteger, nullable=False),
        sa.Column("retained_count", sa.BigInteger, nullable=False),
        sa.Column("retained_bytes", sa.BigInteger, nullable=False),
        sa.Column("largest_packet", sa.BigInteger, nullable=False),
    )  # fmt: skip
    op.bulk_insert(meta, [{"id": 1, "revision_mark": 0, "retained_count": 0, "retained_bytes": 0, "largest_packet": 0}])
    op.execute(_VIEW.format(now=_NOW[op.get_bind().dialect.name]))
