"""Users with their passwords, and the rules of what clients may do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables: no users, no rules."""
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "users",
        sa.Column("username", name, primary_key=True),
        sa.Column("password_hash", sa.Text, nullable=False),
        sa.Column("groups_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "authorization_rules",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("rule_json", sa.Text, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    state = op.create_table(
        "access_state",
        sa.Column("id", sa.SmallInteger, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True,
                  autoincrement=False),
        sa.Column("users_version", sa.BigInteger, nullable=False),
        sa.Column("rules_version", sa.BigInteger, nullable=False),
        sa.Column("last_number", sa.BigInteger, nullable=False),
    )  # fmt: skip
    op.bulk_insert(state, [{"id": 1, "users_version": 0, "rules_version": 0, "last_number": 0}])
