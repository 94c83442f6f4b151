"""Sessions have an owner, and a Client Identifier has one Session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_NOT_ENDING = sa.text("expires_at IS NULL OR expires_at != 0")


def upgrade() -> None:
    """Note the owners. Of several Sessions of a Client Identifier, the newest stays; the others are marked as ended.

    A Session belonged to the node that had made it, whose number is the low byte of its id.
    """
    op.add_column("sessions", sa.Column("owner", sa.SmallInteger))
    op.execute("UPDATE sessions SET owner = id & 255")
    # Their owners end them at the next start: they may have messages of shared subscriptions for other members.
    op.execute(
        "UPDATE sessions SET expiry_interval = 0, expires_at = 0 WHERE id NOT IN (SELECT max(id) FROM sessions "
        "WHERE expires_at IS NULL OR expires_at <> 0 GROUP BY client_id)"
    )
    op.create_index(
        "sessions_clients", "sessions", ["client_id"], unique=True,
        sqlite_where=_NOT_ENDING, postgresql_where=_NOT_ENDING,
    )  # fmt: skip
    op.create_table(
        "session_cuts",
        sa.Column("session_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("origin", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
