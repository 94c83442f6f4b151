"""The history of retained messages: every change in the order of commits, and the view for plain SQL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_VIEW = """
CREATE VIEW retained_history_events AS
SELECT seq, op, topic, payload, qos, client_id, username, origin, changed_at, expires_at, size, revision,
properties_json
FROM retained_history
"""


def upgrade() -> None:
    """Add the history, empty."""
    topic = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    integer = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "retained_history",
        sa.Column("seq", integer, primary_key=True, autoincrement=False),
        sa.Column("topic", topic, nullable=False),
        sa.Column("op", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("qos", sa.SmallInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("client_id", sa.Text),
        sa.Column("username", sa.Text),
        sa.Column("properties5", sa.LargeBinary, nullable=False),
        sa.Column("properties_json", sa.Text),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_index("retained_history_topics", "retained_history", ["topic", "seq"])
    op.create_table(
        "retained_history_periods",
        sa.Column("first_seq", integer, primary_key=True, autoincrement=False),
        sa.Column("complete_since", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("baseline_to", topic, nullable=False),
        sa.Column("pruned_to", sa.BigInteger, nullable=False),
    )
    state = op.create_table(
        "retained_history_state",
        sa.Column("id", sa.SmallInteger, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True,
                  autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("archived_seq", sa.BigInteger),
    )  # fmt: skip
    op.create_table(
        "retained_history_absent", sa.Column("node", sa.SmallInteger, primary_key=True, autoincrement=False)
    )
    op.bulk_insert(state, [{"id": 1, "last_seq": 0, "last_at": 0, "bytes": 0}])
    op.execute(_VIEW)
