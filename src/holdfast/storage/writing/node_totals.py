"""The table ``nodes``: each node's revision mark, and its share of the totals.

The totals of the store are the sums over all nodes, so a start reads a few rows instead of counting all messages. Each
commit that changes them updates the row of its node in its own transaction, so the totals always agree with the
messages.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Connection, Cursor


@frozen
class StoreTotals:
    """The totals of all nodes.

    No revision above ``revision_mark`` was ever committed. ``retained_count`` and ``retained_bytes`` are the number of
    live messages and their bytes. ``largest_packet`` is the length of the longest packet that any retained message ever
    had. ``unsent_revision`` is the highest revision of an operator's change.
    """

    revision_mark: int
    retained_count: int
    retained_bytes: int
    largest_packet: int
    unsent_revision: int


def read_totals(cursor: Cursor) -> StoreTotals:
    """Read the totals of a database with a current schema."""
    cursor.execute(
        "SELECT coalesce(max(revision_mark), 0), CAST(coalesce(sum(retained_count), 0) AS BIGINT), "
        "CAST(coalesce(sum(retained_bytes), 0) AS BIGINT), coalesce(max(largest_packet), 0), "
        "coalesce(max(unsent_revision), 0) FROM nodes"
    )
    return StoreTotals(*cursor.fetchone())


def add_node(connection: Connection, node: int) -> None:
    """Insert the row of a node, unless it exists."""
    connection.cursor().execute("INSERT INTO nodes VALUES (?, 0, 0, 0, 0, NULL) ON CONFLICT (node) DO NOTHING", (node,))


def raise_revision_mark(cursor: Cursor, node: int, revision: int) -> None:
    """Record that a node uses no revision above this one, inside a transaction; a lower one changes nothing."""
    cursor.execute(
        "UPDATE nodes SET revision_mark = ? WHERE node = ? AND revision_mark < ?", (revision, node, revision)
    )


def raise_unsent_revision(cursor: Cursor, node: int, revision: int) -> None:
    """Record the revision of an operator's change, inside its transaction; a lower one changes nothing."""
    cursor.execute(
        "UPDATE nodes SET unsent_revision = ? WHERE node = ? AND (unsent_revision IS NULL OR unsent_revision < ?)",
        (revision, node, revision),
    )


def add_to_totals(cursor: Cursor, node: int, count: int, size: int, largest_packet: int) -> None:
    """Add to a node's share of the totals, inside a transaction."""
    cursor.execute(
        "UPDATE nodes SET retained_count = retained_count + ?, retained_bytes = retained_bytes + ?, "
        "largest_packet = CASE WHEN largest_packet < ? THEN ? ELSE largest_packet END WHERE node = ?",
        (count, size, largest_packet, largest_packet, node),
    )
