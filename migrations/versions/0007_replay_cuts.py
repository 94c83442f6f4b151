"""The cut of each unfinished replay, the cuts that are void, and the changes that were not sent to subscribers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty: replays of before have no cut, and so leave nothing out."""
    op.add_column("sessions", sa.Column("void_cuts", sa.BigInteger))
    op.add_column("session_subscriptions", sa.Column("replay_cut", sa.BigInteger))
    op.add_column("nodes", sa.Column("unsent_revision", sa.BigInteger))
