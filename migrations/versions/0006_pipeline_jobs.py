"""Jobs that import from a staging area, with their progress."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "pipeline_jobs",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("merge", sa.Text, nullable=False),
        sa.Column("position", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
