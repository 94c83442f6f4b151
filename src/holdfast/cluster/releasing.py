"""The owner's side of a move: it gives a Session to the node that its client has connected to.

How it works. Another node asks with :class:`Release`. The owner ends the connection of the client, settles its Will,
and decides. If the client begins a new Session, the old one ends here, and there is nothing to move. Else, in one turn:

    the Session leaves memory    from now on nothing is delivered to it here
    the write is submitted       ``sessions.owner`` is the other node, and the cuts are this node's cursors

Everything that this node has stored for the Session is in the same commit or in an earlier one; every message that
comes later is in a later one. So at each moment either the Session is here, with all its messages, or it is the other
node's, with the messages behind its cuts. If the commit fails, this node loads the Session again.

A commit whose outcome is unknown is repeated. By then the Session may be with the other node already, and may have
changed there. So such a commit begins with a look at the owner (:class:`Departures`), and leaves out what it would
write for a Session of another node.

Each question has a number, and is answered once: a question that is repeated gets the same answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, frozen
from zope.interface import implementer

from holdfast.cluster.arriving import Cuts, digest_of, filters_of
from holdfast.cluster.crossing import Rows
from holdfast.cluster.messages import Outcome, Release, Released
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.identity.interfaces import Principal
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.durable import DurableSessionStates
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.postgres_values import BigIntegers, SmallIntegers, Texts
from holdfast.storage.store import DurableStore

#: answers that are kept, in case the question is repeated
_KEPT = 10_000
#: bytes that a move counts for in the writer's pending bytes
_SIZE = 200

_STILL_HERE = "SELECT id FROM sessions WHERE owner = ? AND id = ANY(CAST(? AS bigint[]))"
_GIVE = (
    "UPDATE sessions SET owner = moved.owner FROM unnest(CAST(? AS bigint[]), CAST(? AS smallint[])) "
    "AS moved (id, owner) WHERE sessions.id = moved.id AND sessions.owner = ? RETURNING sessions.id"
)
_FORGET_CUTS = "DELETE FROM session_cuts WHERE session_id = ANY(CAST(? AS bigint[]))"
_CUT = "INSERT INTO session_cuts SELECT * FROM unnest(CAST(? AS bigint[]), CAST(? AS smallint[]), CAST(? AS bigint[]))"
_GIVE_LEASES = (
    "UPDATE retained_leases SET node = moved.node FROM unnest(CAST(? AS text[]), CAST(? AS smallint[])) "
    "AS moved (client_id, node) WHERE retained_leases.client_id = moved.client_id AND retained_leases.node = ?"
)
_DROP_LEASES = "DELETE FROM retained_leases WHERE node = ? AND client_id = ANY(CAST(? AS text[]))"


@frozen
class Move:
    """A Session that moves to a node."""

    identifier: int
    client_id: str
    node: int
    cuts: Cuts


@implementer(IWriteKind)
class Departures:
    """Looks which Sessions that leave with a commit are still here, before anything of it is written."""

    name = "departures"
    order = 1

    def __init__(self, node: int, gone: set[int]) -> None:
        self._node = node
        self._gone = gone

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Note the Sessions that another node has already."""
        leaving = {write.row.identifier for write in writes}
        cursor.execute(_STILL_HERE, (self._node, BigIntegers(list(leaving))))
        self._gone.clear()
        self._gone.update(leaving.difference(identifier for (identifier,) in cursor.fetchall()))

    def committed(self, result: Any) -> None:
        """Do nothing."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the tickets of the moves tell."""


@implementer(IWriteKind)
class Moves:
    """Gives Sessions to other nodes, behind everything else that a commit writes for them."""

    name = "moves"
    order = 92

    def __init__(self, node: int, gone: set[int]) -> None:
        self._node = node
        self._gone = gone

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Write owners, cuts and leases."""
        cursor.execute("SET LOCAL synchronous_commit = on")
        moves: list[Move] = [write.row for write in writes if write.row.identifier not in self._gone]
        repeated = [write.row.client_id for write in writes if write.row.identifier in self._gone]
        self._gone.clear()
        if repeated:
            cursor.execute(_DROP_LEASES, (self._node, Texts(repeated)))
        if not moves:
            return
        identifiers = BigIntegers([move.identifier for move in moves])
        nodes = SmallIntegers([move.node for move in moves])
        cursor.execute(_GIVE, (identifiers, nodes, self._node))
        given = {identifier for (identifier,) in cursor.fetchall()}
        cursor.execute(_FORGET_CUTS, (BigIntegers(list(given)),))
        cuts = [(move.identifier, *cut) for move in moves if move.identifier in given for cut in move.cuts.items()]
        if not cuts:
            return
        of, origins, numbers = zip(*cuts, strict=True)
        cursor.execute(_CUT, (BigIntegers(of), SmallIntegers(origins), BigIntegers(numbers)))
        cursor.execute(_GIVE_LEASES, (Texts([move.client_id for move in moves]), nodes, self._node))

    def committed(self, result: Any) -> None:
        """Do nothing."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the tickets tell."""


@define(eq=False)
class _Question:
    """A question of another node, and its answer once there is one."""

    node: int
    ask: Release
    answer: Released | None = None


class Releasing:
    """Gives Sessions of this node to others.

    ``give_up`` ends the connection of a client and settles its Will; it returns the Session that may move, or what has
    become of it. ``let_go`` lets it leave memory. ``come_back`` loads it again, since it could not move. ``tell`` sends
    an answer.
    """

    def __init__(
        self,
        durable: DurableStore,
        states: DurableSessionStates,
        rows: Rows,
        *,
        session_of: Callable[[str], Session | None],
        give_up: Callable[[Principal, bool], Session | Outcome],
        let_go: Callable[[Session], None],
        come_back: Callable[[int, Cuts], object],
        tell: Callable[[int, Released], None],
    ) -> None:
        self._durable = durable
        self._states = states
        self._rows = rows
        self._session_of = session_of
        self._give_up = give_up
        self._let_go = let_go
        self._come_back = come_back
        self._tell = tell
        gone: set[int] = set()
        states.leave_out(gone)
        self._departures = Departures(durable.node, gone)
        self._moves = Moves(durable.node, gone)
        #: by Client Identifier: the tickets of Sessions that are on their way
        self._leaving: dict[str, CommitTicket] = {}
        self._questions: OrderedDict[tuple[int, int], _Question] = OrderedDict()
        #: how many Sessions have left so far
        self.count = 0

    def leaving(self, client_id: str) -> CommitTicket | None:
        """Return the ticket of the Session of a client that is on its way to another node, if there is one."""
        return self._leaving.get(client_id)

    def asked(self, node: int, ask: Release) -> None:
        """Answer the question of a node, now or later."""
        key = node, ask.number
        known = self._questions.get(key)
        if known is not None:
            if known.answer is not None:
                self._tell(node, known.answer)
            return
        question = self._questions[key] = _Question(node, ask)
        if len(self._questions) > _KEPT:
            self._questions.popitem(last=False)
        self._begin(question)

    def _begin(self, question: _Question) -> None:
        """Decide behind a move that is under way, and when all that is known of the Session is stored."""
        client_id = question.ask.client_id
        leaving = self._leaving.get(client_id)
        if leaving is not None:
            leaving.when_settled(lambda _: self._begin(question))
            return
        parts = self._durable.parts
        if parts is None:  # this node stops: its heir will be asked
            return
        session = self._session_of(client_id)
        parts.writer.flushed().when_settled(lambda _: self._decide(question, session))

    def _decide(self, question: _Question, before: Session | None) -> None:
        ask = question.ask
        if self._session_of(ask.client_id) is not before or ask.client_id in self._leaving:
            self._begin(question)
            return
        found = self._give_up(Principal(ask.client_id, ask.username), ask.ends)
        if isinstance(found, Outcome):
            self._answer_when_stored(question, found)
        elif digest_of(filters_of(found)) != ask.digest or self._states.has_unwritten(found.record.identifier):
            self._answer_when_stored(question, Outcome.LATER)
        else:
            self._move(question, found)

    def _answer_when_stored(self, question: _Question, outcome: Outcome) -> None:
        """Answer when a Will that was published, and the end of a Session, are stored."""
        parts = self._durable.parts
        if parts is not None:
            parts.writer.flushed().when_settled(lambda _: self._answer(question, outcome))

    def _answer(self, question: _Question, outcome: Outcome) -> None:
        question.answer = Released(question.ask.number, outcome)
        self._tell(question.node, question.answer)

    def _move(self, question: _Question, session: Session) -> None:
        parts = self._durable.parts
        assert parts is not None
        identifier = session.record.identifier
        cuts = {**self._rows.position(), self._durable.node: self._rows.newest()}
        move = Move(identifier, session.client_id, question.node, cuts)
        self._let_go(session)
        parts.writer.add(Write(self._departures, identifier, move, 0))
        ticket = parts.writer.submit(Write(self._moves, identifier, move, _SIZE), committed=True)
        self._leaving[session.client_id] = ticket
        ticket.when_settled(partial(self._moved, question, move))

    def _moved(self, question: _Question, move: Move, failure: StorageFailure | None) -> None:
        del self._leaving[move.client_id]
        if failure is None:
            self.count += 1
            self._states.drop_unwritten(move.identifier)
            self._answer(question, Outcome.MOVED)
        else:
            self._come_back(move.identifier, move.cuts)
            self._answer_when_stored(question, Outcome.LATER)


def read_unused(identifiers: Sequence[int], connection: Connection) -> list[int]:
    """Return which of these messages no delivery of any node refers to. Runs in a reader's thread."""
    cursor = connection.cursor()
    cursor.execute(
        "SELECT DISTINCT message_id FROM session_deliveries WHERE message_id = ANY(CAST(? AS bigint[]))",
        (BigIntegers(identifiers),),
    )
    used = {identifier for (identifier,) in cursor.fetchall()}
    return [identifier for identifier in identifiers if identifier not in used]
