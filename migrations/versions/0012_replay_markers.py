"""The markers that are due at the ends of replays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: no marker is due."""
    op.add_column("session_subscriptions", sa.Column("replay_marker", sa.Text))
