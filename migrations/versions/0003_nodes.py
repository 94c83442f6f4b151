"""Several nodes on one database: totals and Will Messages by node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give each node a row of its own, and each Will Message its node."""
    topic = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "nodes",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("revision_mark", sa.BigInteger, nullable=False),
        sa.Column("retained_count", sa.BigInteger, nullable=False),
        sa.Column("retained_bytes", sa.BigInteger, nullable=False),
        sa.Column("largest_packet", sa.BigInteger, nullable=False),
    )
    op.execute(  # a revision's low byte is the node that used it
        "INSERT INTO nodes SELECT revision_mark & 255, revision_mark, retained_count, retained_bytes, largest_packet "
        "FROM store_meta"
    )
    op.drop_table("store_meta")
    op.rename_table("wills", "wills_before")
    if op.get_bind().dialect.name == "postgresql":  # the key of the new table will have this name
        op.execute("ALTER INDEX wills_pkey RENAME TO wills_before_pkey")
    op.create_table(
        "wills",
        sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False),
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
    op.execute(
        "INSERT INTO wills SELECT 0, client_id, username, topic, qos, retain, delay, due_at, properties5, payload "
        "FROM wills_before"
    )
    op.drop_table("wills_before")
