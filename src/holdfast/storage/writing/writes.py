"""Writes: durable changes that wait for their commit, for any table."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from holdfast.hot_values import hot_frozen
from holdfast.storage.driver import Cursor
from holdfast.tickets import StorageFailure


class IWriteKind(Interface):
    """One kind of durable change. It knows the tables of its writes."""

    name = Attribute("The name of the writes in log lines.")
    order = Attribute("Within a transaction, kinds are applied in ascending order.")

    def apply(cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Write rows of distinct keys, in the writer's thread, inside its transaction; return a result.

        After a rollback the writer calls it again with fewer writes, so it must change nothing but the database.
        """

    def committed(result: Any) -> None:
        """Take the result of ``apply`` when its transaction is durable, in the reactor thread."""

    def failed(writes: Sequence[Write], failure: StorageFailure) -> None:
        """Take the writes that were not stored, in the reactor thread, before their tickets are settled."""


@hot_frozen
class Write:
    """One change: ``row`` is the row that the kind writes for ``key`` (None: delete it), ``size`` its size in bytes.

    If two writes with the same kind and key wait for the same commit, the one with the higher ``rank`` is written. If
    the ranks are equal, the later one is written. ``fresh`` promises that the database has no row with this key, and
    that no commit in progress writes one. If its key is deleted while it waits, the write and the deletion are
    forgotten and never reach the disk.
    """

    kind: IWriteKind
    key: Hashable
    row: Any
    size: int
    rank: int = 0
    fresh: bool = False


Identity = tuple[IWriteKind, Hashable]
