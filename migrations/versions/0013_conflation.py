"""The intervals of conflation of subscriptions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: no subscription is conflated."""
    op.add_column("session_subscriptions", sa.Column("conflate", sa.Integer))
