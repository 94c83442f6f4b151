"""The operators of changes through the API, in the history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_VIEW = """VIEW retained_history_events AS
SELECT seq, op, topic, payload, qos, client_id, username, origin, changed_at, expires_at, size, revision,
properties_json, operator
FROM retained_history"""


def upgrade() -> None:
    """Add the column, and show it in the view, whose grants stay.

    The operators of earlier sets and restores are unknown; those of earlier clears are in ``username``.
    """
    op.add_column("retained_history", sa.Column("operator", sa.Text))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"CREATE OR REPLACE {_VIEW}")
    else:
        op.execute("DROP VIEW retained_history_events")
        op.execute(f"CREATE {_VIEW}")
