"""Totals and quotas count topic, properties and payload of each retained message, and 200 bytes more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

#: The topics counted by one statement.
_SLICE = 10_000
#: As holdfast.core.messages.STORED_ENTRY was at this revision.
_ENTRY = 200
_LENGTHS = {
    "sqlite": "length(CAST(topic AS BLOB)) + length(properties5)",
    "postgresql": "octet_length(topic) + octet_length(properties5)",
}


def upgrade() -> None:
    """Count the totals anew, slice by slice. The broker counts the usage of quotas anew when it starts."""
    connection = op.get_bind()
    lengths = _LENGTHS[connection.dialect.name]
    of_slice = sa.text(
        f"SELECT count(*), max(topic), CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM (SELECT topic, "  # noqa: S608 - constants
        f"CASE tombstone WHEN 0 THEN size + {lengths} + {_ENTRY} ELSE 0 END AS bytes FROM retained "
        "WHERE topic > :after ORDER BY topic LIMIT :rows) AS slice"
    )
    total, after, rows = 0, "", _SLICE
    while rows == _SLICE:
        rows, last, size = connection.execute(of_slice, {"after": after, "rows": _SLICE}).one()
        total += size
        after = last
    # The total is the sum over all nodes; which of them has it does not matter.
    op.execute("UPDATE nodes SET retained_bytes = 0")
    connection.execute(
        sa.text("UPDATE nodes SET retained_bytes = :total WHERE node = (SELECT min(node) FROM nodes)"), {"total": total}
    )
    op.execute("DELETE FROM retained_usage WHERE subject <> ''")
    op.execute("UPDATE retained_usage SET messages = 0, bytes = 0, counted_to = ''")
