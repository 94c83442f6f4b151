"""What is asked of a database about retained messages; :mod:`sqlite` and :mod:`postgres` have the SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import define, frozen

from holdfast.retained.store.rows import Row
from holdfast.retained.store.values import Usage
from holdfast.retained.wildcards.plan import Plan
from holdfast.storage.driver import Connection, Cursor

#: What the level counts and patterns of a plan become: a condition (with a leading AND) and what to bind for it.
Check = tuple[str, dict[str, Any]]


@define
class Totals:
    """How the store's totals stand, or how a transaction changes them.

    ``highest`` is the highest revision a transaction has met or used; ``lost`` are the topics where what is stored is
    newer than what was to be written, and stays.
    """

    count: int = 0
    payload_bytes: int = 0
    largest_packet: int = 0
    levels: frozenset[int] = frozenset()
    highest: int = 0
    lost: frozenset[str] = frozenset()

    def add(self, other: Totals) -> None:
        """Add a change."""
        self.count += other.count
        self.payload_bytes += other.payload_bytes
        self.largest_packet = max(self.largest_packet, other.largest_packet)
        self.highest = max(self.highest, other.highest)
        if not other.levels <= self.levels:
            self.levels |= other.levels


@frozen
class Found:
    """A run of packets, as one answer of the database: see :class:`holdfast.retained.store.values.Slice`.

    ``qos`` and ``expires_at`` are empty unless asked for.
    """

    last: str
    count: int
    packets: bytes
    soonest_expiry: int
    qos: bytes = b""
    expires_at: tuple[int, ...] = ()


@frozen
class Leap:
    """Where a search gets by jumping over what cannot match, and where by walking from topic to topic.

    ``visited`` are the topics it has jumped to, each the first one from the successor of the one before: what matches
    is among them. With ``complete``, nothing that matches is behind them. ``par`` is the topic jumping has to get
    beyond to be worth it, ``end`` the last one of a window to be read instead; None if there are not so many.
    ``likely`` are all topics of the window that may match, None if that is not known or they are not few.
    """

    visited: Sequence[str]
    complete: bool
    par: str | None
    end: str | None
    likely: Sequence[str] | None = None


class Statements(Protocol):
    """One database's way to ask. What is bound (``bound``) for a range has the names of :func:`conditions`."""

    # --- reading, in the reader's thread

    def rows_at_once(self, rows: int, slice_rows: int) -> int:
        """Return how many rows one statement is best asked for, of a batch of ``rows`` in slices of ``slice_rows``."""

    def interruptible(
        self, connection: Connection, impatient: Callable[[], bool], read_time: float
    ) -> AbstractContextManager[None]:
        """Let statements be broken off when ``impatient`` says so, or by a multiple of ``read_time`` (seconds)."""

    def be_patient(self, connection: Connection) -> None:
        """Get ready to search: from here on no statement is broken off, for they are bounded otherwise."""

    def was_interrupted(self, error: Exception) -> bool:
        """Tell whether this is what breaking off a statement raises."""

    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Return the level counts as of now; ``totals`` are as this process knows them."""

    def levels(self, cursor: Cursor) -> frozenset[int]:
        """Return the level counts ever present."""

    def get(self, cursor: Cursor, topic: str) -> tuple[Any, ...] | None:
        """Return the MESSAGE_COLUMNS of a topic that is retained."""

    def check_of(self, plan: Plan, levels_present: frozenset[int]) -> Check | None:
        """Return what is left to check of a plan inside its ranges, None when SQL cannot check it."""

    def listed(self, topics: Sequence[str]) -> Check:
        """Return the condition for being one of these topics."""

    def conditions(self, bounded: bool, no_local: bool, limited: bool, version5: bool, check: str) -> str:
        """Say which rows of a range are wanted; the names bound are those of a Selection."""

    def window(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> str | None:
        """Find the topic ``offset`` topics after the first one from ``low`` (up to ``high`` when bounded)."""

    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Visit at most ``jumps`` topics, and walk ``par`` and ``offset`` topics, all from ``low``.

        It goes up to ``high`` when bounded.
        """

    def topics(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> list[str]:
        """List the topics from ``low`` (up to ``high`` when bounded)."""

    def lengths(self, cursor: Cursor, conditions: str, version5: bool, bound: dict[str, Any]) -> list[int]:
        """Return the lengths of the packets that :meth:`read` would bring, without touching a payload."""

    def read(
        self, cursor: Cursor, conditions: str, version5: bool, detailed: bool, bound: dict[str, Any]
    ) -> Found | None:
        """Read at most ``limit`` messages as one row, None if there are none."""

    def weights(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[int]:
        """Return about how many bytes each of the rows has that :meth:`entries` would bring."""

    def entries(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Read at most ``limit`` messages: MESSAGE_COLUMNS (the payload empty unless asked for) and the size."""

    def standing(self, cursor: Cursor, topics: Sequence[str]) -> list[tuple[Any, ...]]:
        """Read how topics stand: MESSAGE_COLUMNS with an empty payload, the size, and whether it is a tombstone."""

    # --- writing, in the writer's thread, inside its transaction

    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows, sorted by topic, unless newer ones are there; add what that does to the totals to ``change``."""

    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""

    def held(self, cursor: Cursor, topics: Sequence[str]) -> dict[str, Usage]:
        """Return what is retained in these topics, and let no other node change it before the transaction ends."""

    def held_between(self, cursor: Cursor, low: str, high: str | None, limit: int) -> dict[str, Usage]:
        """Return what is retained from ``low`` up to but not including ``high``, the first so many topics in order."""

    def counted(self, cursor: Cursor, scopes: Sequence[str]) -> dict[str, str | None]:
        """Return how far these scopes of usage are counted; no other node counts before the transaction ends."""

    def cap_expiry(
        self, cursor: Cursor, lifetime: int, never_too: bool, after: str, limit: int
    ) -> tuple[str | None, list[str]]:
        """Let messages expire earlier: see :meth:`holdfast.retained.store.interfaces.IRetainedStore.cap_expiry`.

        Return where to go on, and the topics in which something has changed.
        """

    def expired(self, cursor: Cursor, now: int, limit: int) -> tuple[list[str], int]:
        """Find rows that have expired: their topics, and the bytes of their payloads together."""

    def bury(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Turn the rows of these topics into tombstones."""

    def purge(self, cursor: Cursor, before: int, limit: int) -> int:
        """Delete tombstones older than this; return how many."""
