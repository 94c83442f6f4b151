"""The store's one meta row: the revision mark and the running totals, read once at start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.storage.driver import Connection

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen


@frozen
class StoreMeta:
    """What is known about the store without looking at its rows.

    ``revision_mark`` is the highest revision used; ``retained_count`` and ``retained_bytes`` count live messages and
    the bytes of their payloads; no packet of a retained message was ever longer than ``largest_packet`` bytes.
    """

    revision_mark: int
    retained_count: int
    retained_bytes: int
    largest_packet: int


def read_meta(connection: Connection) -> StoreMeta:
    """Read the meta row of a database with a current schema."""
    cursor = connection.cursor()
    cursor.execute("SELECT revision_mark, retained_count, retained_bytes, largest_packet FROM store_meta")
    return StoreMeta(*cursor.fetchone())


def raise_mark(connection: Connection, revision: int) -> None:
    """Record the highest revision used, inside a transaction; an older one changes nothing."""
    connection.cursor().execute("UPDATE store_meta SET revision_mark = ? WHERE revision_mark < ?", (revision, revision))
