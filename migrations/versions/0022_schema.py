"""The schema of the first release. A new database gets the newest schema at once, so nothing runs this."""

from __future__ import annotations

revision = "0022"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: the tables are in ``holdfast.storage.tables``."""
