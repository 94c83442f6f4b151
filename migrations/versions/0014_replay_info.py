"""What Clients are told of each replayed message."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: nothing is told."""
    op.add_column("session_subscriptions", sa.Column("replay_info", sa.Text))
