"""Whose return cancels a Will Message that the next process finds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty: nobody knows."""
    op.add_column("wills", sa.Column("listener", sa.Text))
    op.add_column("wills", sa.Column("lost", sa.SmallInteger))
    op.add_column("wills", sa.Column("untold", sa.SmallInteger))
