"""A Session enters this node: it is built from its rows, gets what it has missed, and is registered.

How it works. A Session may have a hundred thousand messages. So all of this is done in steps, some in each turn of the
reactor (:mod:`holdfast.scheduling.long_work`), and the Session takes no message of its own accord meanwhile:

    read      the rows of the Session, its cuts, and the messages behind these
    built     its messages are restored, and the routing table knows its Subscriptions
    given     the messages that it has missed; each part with its cuts, in one commit
    entered   in one turn: it is registered, gets the last messages that it has missed, and its cuts are deleted

A process that dies in between leaves a Session with later cuts, and as many more deliveries. A write that fails is
repeated like others of the Session; until then the Session is not loaded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred

from holdfast.cluster.arriving import Cuts, give, read_missed
from holdfast.cluster.crossing import CrossedMessage
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.retained.leases import Lease, leases_of
from holdfast.scheduling.long_work import LongWork
from holdfast.scheduling.waiting import settled
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.state import StoredSession
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import BigIntegers, Texts
from holdfast.storage.store import OpenStore

#: messages that a Session gets in the turn in which it enters, at most
FEW = 50
#: messages that a Session gets in one step (some 30 microseconds each), and before the writer is asked for room again
_PER_STEP, _PER_ROUND = 5, 1000
#: bytes that the write of a cut counts for
_CUT_SIZE = 50

_OWN = (
    "SELECT id FROM sessions WHERE owner = ? AND id = ANY(CAST(? AS bigint[])) "
    "AND (id = ANY(CAST(? AS bigint[])) OR id IN (SELECT session_id FROM session_cuts))"
)
_CUTS = "SELECT session_id, origin, number FROM session_cuts WHERE session_id = ANY(CAST(? AS bigint[]))"
_LEASES = (
    f"SELECT {layouts.retained_leases.names} FROM retained_leases WHERE node = ? "  # noqa: S608
    "AND client_id = ANY(CAST(? AS text[]))"
)


class Register(Protocol):
    """The registry of this node, as Sessions that come see it."""

    def has(self, stored: StoredSession) -> bool:
        """Tell whether a Session is registered."""

    def build(self, stored: StoredSession) -> tuple[Session, Iterator[int]]:
        """Return a Session that takes no messages yet, and the steps that build it."""

    def enter(self, session: Session, stored: StoredSession, leases: Sequence[Lease]) -> bool:
        """Register a Session, which takes messages from now on. Return whether it lives; else it is being ended."""

    def join_groups(self, session: Session) -> Iterator[int]:
        """Make a registered Session a member of its groups, in steps."""

    def forget(self, session: Session) -> None:
        """Let a Session leave memory without ending it."""


@define(eq=False)
class Coming:
    """A Session that is being built. It has the messages up to its ``cuts``; those ``missed`` are given next."""

    session: Session
    stored: StoredSession
    leases: Sequence[Lease]
    cuts: dict[int, int]
    missed: list[CrossedMessage]
    #: the origins with a row in ``session_cuts``
    written: set[int] = field(factory=set)
    has_entered: bool = False

    @property
    def identifier(self) -> int:
        """The id of the Session."""
        identifier: int = self.stored.record.identifier
        return identifier


@define
class _Read:
    """The rows of a Session."""

    stored: StoredSession
    cuts: dict[int, int]
    is_cut: bool
    missed: list[CrossedMessage]
    leases: list[Lease]


class Entering:
    """Builds Sessions and registers them. ``parts`` are those of the open store, in each call."""

    def __init__(self, node: int, states: DurableSessionStates, work: LongWork, register: Register) -> None:
        self._node = node
        self._states = states
        self._work = work
        self._register = register

    async def read(
        self, parts: OpenStore, batch: Sequence[int], upto: Mapping[int, int], returned: Mapping[int, Cuts]
    ) -> list[Coming]:
        """Read Sessions of this node that it has not loaded, with what they have missed up to these numbers.

        ``returned`` has the cuts of Sessions that this node has forgotten, and could not give away. The Sessions that
        are returned are not built yet.
        """
        await settled(parts.writer.flushed())
        ready = [identifier for identifier in batch if not self._states.has_unwritten(identifier)]
        coming = []
        for read in await parts.readers.read(partial(self._read, ready, upto, returned)):
            written = set(read.cuts) if read.is_cut else set()
            if self._register.has(read.stored):  # its cuts could not be deleted
                self._delete_cuts(read.stored.record.identifier, written)
                continue
            session, steps = self._register.build(read.stored)
            each = Coming(session, read.stored, read.leases, read.cuts, read.missed, written)
            coming.append(each)
            try:
                await self._do(session, steps)
            except BaseException:
                self.leave(coming)
                raise
        return coming

    def _read(
        self, batch: Sequence[int], upto: Mapping[int, int], returned: Mapping[int, Cuts], connection: Connection
    ) -> list[_Read]:
        """Read Sessions. Runs in a reader's thread."""
        cursor = connection.cursor()
        cursor.execute(_OWN, (self._node, BigIntegers(batch), BigIntegers(list(returned))))
        own = [identifier for (identifier,) in cursor.fetchall()]
        if not own:
            return []
        sessions = self._states.load_some(connection, own)
        stored_cuts: dict[int, dict[int, int]] = {}
        cursor.execute(_CUTS, (BigIntegers(own),))
        for identifier, origin, number in cursor.fetchall():
            stored_cuts.setdefault(identifier, {})[origin] = number
        cuts = {each: dict(stored_cuts.get(each) or returned.get(each, {})) for each in own}
        missed = read_missed(connection, sessions, cuts, upto)
        cursor.execute(_LEASES, (self._node, Texts([stored.principal.client_id for stored in sessions])))
        leases = leases_of(cursor.fetchall())
        return [
            _Read(
                stored,
                cuts[stored.record.identifier],
                stored.record.identifier in stored_cuts,
                missed[stored.record.identifier],
                [lease for lease in leases if lease.client_id == stored.principal.client_id],
            )
            for stored in sessions
        ]

    def has_unwritten(self, identifier: int) -> bool:
        """Tell whether a Session was not read because writes of it are repeated."""
        return self._states.has_unwritten(identifier)

    async def look_again(
        self, parts: OpenStore, coming: Sequence[Coming], since: Mapping[int, int], upto: Mapping[int, int]
    ) -> None:
        """Read what has come for Sessions since they were read: the rows between these numbers of each origin."""
        await settled(parts.writer.flushed())
        sessions = [each.stored for each in coming]
        cuts = {each.identifier: since for each in coming}
        missed = await parts.readers.read(partial(_read_missed, sessions, cuts, upto))
        for each in coming:
            each.missed += missed[each.identifier]

    async def give(self, parts: OpenStore, coming: Coming, but: int = 0) -> None:
        """Give a Session the messages that it has missed, except for the last ones, in steps."""
        while len(coming.missed) > but:
            count = min(_PER_ROUND, len(coming.missed) - but)
            given, coming.missed = coming.missed[:count], coming.missed[count:]
            if parts.writer.room <= 0:
                await settled(parts.writer.flushed())
            await self._do(coming.session, self._given(coming, given))

    def _given(self, coming: Coming, missed: Sequence[CrossedMessage]) -> Iterator[int]:
        for start in range(0, len(missed), _PER_STEP):
            yield 1
            part = missed[start : start + _PER_STEP]
            after = self._move_cuts(coming, {crossed.origin: crossed.number for crossed in part})
            session = coming.session
            session.is_over = False
            try:
                for crossed in part:
                    give(session, OutgoingMessage(crossed.message, after, crossed.replaces))
            finally:
                session.is_over = True

    def _move_cuts(self, coming: Coming, moved: Mapping[int, int]) -> CommitTicket:
        """Write up to which rows the Session has the messages, in the commit of their deliveries."""
        coming.cuts.update(moved)
        # A Session that this node could not give away has no cuts in the database yet: all of them come first.
        changed = moved if coming.written else coming.cuts
        ticket = COMMITTED
        for origin in changed:
            row = (coming.identifier, origin, coming.cuts[origin])
            ticket = self._states.submit(self._states.cuts, row[:2], row, _CUT_SIZE)
        coming.written.update(changed)
        return ticket

    def _delete_cuts(self, identifier: int, origins: set[int]) -> CommitTicket | None:
        ticket = None
        for origin in origins:
            ticket = self._states.submit(self._states.cuts, (identifier, origin), None, _CUT_SIZE)
        return ticket

    def enter(self, coming: Coming, held: Sequence[OutgoingMessage]) -> None:
        """Register a Session, and give it the rest: what it has missed, and messages of own clients."""
        after = self._delete_cuts(coming.identifier, coming.written) or COMMITTED
        coming.has_entered = True
        if self._register.enter(coming.session, coming.stored, coming.leases):
            for crossed in coming.missed:
                give(coming.session, OutgoingMessage(crossed.message, after, crossed.replaces))
            for outgoing in held:
                give(coming.session, OutgoingMessage(outgoing.message, after, outgoing.replaces))

    async def join_groups(self, coming: Coming) -> None:
        """Make a Session that has entered a member of its groups."""
        await self._do(coming.session, self._register.join_groups(coming.session))

    def leave(self, coming: Sequence[Coming]) -> None:
        """Forget the Sessions that could not enter: they are read again."""
        for each in coming:
            if not each.has_entered:
                self._register.forget(each.session)

    async def _do(self, session: Session, steps: Iterator[int]) -> None:
        done: Deferred[None] | None = self._work.do(session, steps)
        if done is not None:
            await done


def _read_missed(
    sessions: Sequence[StoredSession],
    cuts: Mapping[int, Cuts],
    upto: Mapping[int, int],
    connection: Connection,
) -> dict[int, list[CrossedMessage]]:
    return read_missed(connection, sessions, cuts, upto)
