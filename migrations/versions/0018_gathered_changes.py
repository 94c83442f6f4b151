"""Which nodes keep the newest changed topics in memory for a few seconds before they store them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: no node does."""
    op.add_column("retained_changes_epochs", sa.Column("gathers", sa.SmallInteger))
