"""Commit groups: the writes that wait for the same commit, with their tickets, and the outcome of a commit."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from attrs import define

from holdfast.storage.writing.writes import Identity, IWriteKind, Write
from holdfast.tickets import CommitTicket, RunTicket, StorageFailure

#: A ticket and what it waits for: a write; several writes, for a :class:`RunTicket`; None is the end of the commit,
#: with any result. None in place of one of several writes is one whose outcome is known.
Entry = tuple[Identity | list[Identity | None] | None, CommitTicket]


class CommitGroup:
    """Writes for one commit, at most one for each key, and the tickets that wait for it, in order of submission.

    ``began`` is the time of the first change, in seconds of the reactor's clock.
    """

    __slots__ = ("acknowledged_at", "began", "cancelled", "coalesced", "size", "tickets", "writes")

    def __init__(self, began: float) -> None:
        self.began = began
        self.writes: dict[Identity, Write] = {}
        self.tickets: list[Entry] = []
        self.size = 0
        self.coalesced = 0
        self.cancelled = 0
        #: when the first change was acknowledged ahead of this commit, None if none was
        self.acknowledged_at: float | None = None

    def add(self, write: Write) -> int:
        """Add a write; return the difference that it makes to the group's size in bytes."""
        identity = (write.kind, write.key)
        before = self.writes.get(identity)
        grown = write.size
        if before is not None:
            self.coalesced += 1
            if before.rank > write.rank:
                return 0
            grown -= before.size
            # The dict is in order of submission, and kinds write in that order: the new write goes to the end.
            del self.writes[identity]
            if before.fresh and write.row is None:
                self.cancelled += 1
                self.size -= before.size
                return -before.size
            if write.fresh is not before.fresh:
                # The database still has no row of this key if it had none before the first write of the group.
                write = Write(write.kind, write.key, write.row, write.size, write.rank, before.fresh)
        self.writes[identity] = write
        self.size += grown
        return grown

    def keep_settled(self, left: Sequence[Write]) -> None:
        """Drop the tickets that wait for the writes ``left`` or for the whole group; :func:`merge_left` has them."""
        identities = {(write.kind, write.key) for write in left}
        self.tickets = [
            entry for entry in self.tickets if entry[0] is not None and not _waits_for(entry[0], identities)
        ]


def note_failures(entries: Sequence[Entry], failures: Mapping[Identity, StorageFailure]) -> None:
    """Tell the tickets of several writes which of these have failed."""
    if failures:
        for waited, ticket in entries:
            if isinstance(ticket, RunTicket) and isinstance(waited, list):
                ticket.failures.update(
                    (place, failures[one]) for place, one in enumerate(waited) if one is not None and one in failures
                )


def _waits_for(waited: Identity | list[Identity | None], identities: Container[Identity]) -> bool:
    if isinstance(waited, list):
        return any(one in identities for one in waited)
    return waited in identities


def merge_left(left: Sequence[Write], group: CommitGroup, queued: CommitGroup | None) -> CommitGroup:
    """Return a group of the writes that a commit has ``left``, their tickets, and the ``queued`` group behind them.

    None of the writes left is fresh: if the outcome of the commit is unknown, it may have stored them.
    """
    merged = CommitGroup(group.began)
    merged.acknowledged_at = group.acknowledged_at
    for write in left:
        merged.add(Write(write.kind, write.key, write.row, write.size, write.rank))
    identities = set(merged.writes)
    for waited, ticket in group.tickets:
        if waited is None:
            merged.tickets.append((None, ticket))
        elif _waits_for(waited, identities):
            if isinstance(waited, list):  # of the others the outcome is known; later writes of their keys are not these
                waited = [one if one in identities else None for one in waited]
            merged.tickets.append((waited, ticket))
    if queued is not None:
        for write in queued.writes.values():
            merged.add(write)
        merged.tickets += queued.tickets
        if merged.acknowledged_at is None:
            merged.acknowledged_at = queued.acknowledged_at
        merged.coalesced += queued.coalesced
        merged.cancelled += queued.cancelled
    return merged


@define
class CommitOutcome:
    """The outcome of a commit group: the results of its transactions, and the failures by identity.

    If the database was ``away``, the writes ``left`` can be stored later.
    """

    results: list[tuple[IWriteKind, Any]]
    failures: dict[Identity, StorageFailure]
    rows: int = 0
    commits: int = 0
    seconds: float = 0.0
    away: StorageFailure | None = None
    left: Sequence[Write] = ()
