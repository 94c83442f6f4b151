"""The rules of the history: which topics each period records, and how long their changes are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty: the present periods record all topics, and keep them for ``retainer.history.keep``."""
    op.add_column("retained_history_periods", sa.Column("rules", sa.Text))
    op.add_column("retained_history_periods", sa.Column("depths", sa.Text))
    op.add_column("retained_history_state", sa.Column("rules", sa.Text))
