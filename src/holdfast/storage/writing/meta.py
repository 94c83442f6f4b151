"""What is known about the store without looking at its rows: each node's revision mark and share of the totals."""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Connection, Cursor


@frozen
class StoreMeta:
    """All nodes together.

    ``revision_mark`` is the highest revision used; ``retained_count`` and ``retained_bytes`` count live messages and
    the bytes of their payloads; no packet of a retained message was ever longer than ``largest_packet`` bytes.
    """

    revision_mark: int
    retained_count: int
    retained_bytes: int
    largest_packet: int


def read_meta(cursor: Cursor) -> StoreMeta:
    """Read the totals of a database with a current schema."""
    cursor.execute(
        "SELECT coalesce(max(revision_mark), 0), CAST(coalesce(sum(retained_count), 0) AS BIGINT), "
        "CAST(coalesce(sum(retained_bytes), 0) AS BIGINT), coalesce(max(largest_packet), 0) FROM nodes"
    )
    return StoreMeta(*cursor.fetchone())


def join(connection: Connection, node: int) -> None:
    """Give the node its row, if it has none yet."""
    connection.cursor().execute("INSERT INTO nodes VALUES (?, 0, 0, 0, 0) ON CONFLICT (node) DO NOTHING", (node,))


def raise_mark(cursor: Cursor, node: int, revision: int) -> None:
    """Record the highest revision a node has used, inside a transaction; an older one changes nothing."""
    cursor.execute(
        "UPDATE nodes SET revision_mark = ? WHERE node = ? AND revision_mark < ?", (revision, node, revision)
    )


def add_to_totals(cursor: Cursor, node: int, count: int, payload_bytes: int, largest_packet: int) -> None:
    """Add to a node's share of the totals, inside a transaction."""
    cursor.execute(
        "UPDATE nodes SET retained_count = retained_count + ?, retained_bytes = retained_bytes + ?, "
        "largest_packet = CASE WHEN largest_packet < ? THEN ? ELSE largest_packet END WHERE node = ?",
        (count, payload_bytes, largest_packet, largest_packet, node),
    )
