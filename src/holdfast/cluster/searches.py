"""The search of a client for its Session, from CONNECT to the moment at which this node may serve it.

How it works. A client that connects to this node goes through these steps:

    look up   all CONNECTs of a turn in one read: the owner of the Session, and the nodes that have a Will of the client
    nobody    the row of the new Session is written before its CONNACK. Of two nodes that do it at one time, one has the
              row, and the other one looks up again
    expect    the messages for the Session come here too (:mod:`.adopting`)
    ask       the owner gives it away (:mod:`.releasing`)
    adopt     the Session is loaded
    Wills     each node that has a Will of the client is asked too: it publishes or discards it, and answers when that
              is committed. So no Will comes behind the CONNACK of its client

A Session that was here when its client connected last needs none of this: an older connection anywhere else would have
moved it. The Will of a client may be at another node than its Session, because two nodes have taken over from a third.

The client waits for :data:`PATIENCE` at most: then it is told that the server is unavailable. The search goes on as
long as the owner may still answer, since its commit decides. A dead owner is not asked: once others have taken over
from it, this node takes the Session. The Wills of a dead node are at its heir then.

A second CONNECT of the same client ends the first one's connection, and has its turn when the first search is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.cluster.adopting import Adopting, NotNow
from holdfast.cluster.messages import Outcome, Release, Released
from holdfast.cluster.releasing import Releasing
from holdfast.cluster.whereabouts import Home, Neighbours, Whereabouts
from holdfast.core.tickets import StorageFailure
from holdfast.identity.interfaces import Principal
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.registry import Unavailable
from holdfast.sessions.state import ISessionRecord, ISessionStates
from holdfast.storage.store import DurableStore
from holdfast.wire import ReasonCode

#: seconds that a client waits for its Session
PATIENCE = 10.0
#: seconds until a question is repeated, and until a search that found nothing to do looks up again
_ASK_AGAIN, _LOOK_AGAIN = 1.0, 0.25

#: told to a client whose connection ends because it has another one
TAKEN = "another connection uses the same Client Identifier"


@define(eq=False)
class _Waiting:
    """A client that waits for its Session. ``answer`` is called once."""

    link: Connection
    principal: Principal
    ends: bool
    expiry_interval: float | None
    answer: Deferred[Unavailable | None]
    patience: IDelayedCall | None = None

    @property
    def waits(self) -> bool:
        """Whether it has got no answer yet."""
        return not self.answer.called


@define(eq=False)
class _Search:
    """The search for the Session of one client, and whoever waits for the next one."""

    present: _Waiting
    next: _Waiting | None = None


class Searches:
    """The searches of all clients that wait.

    ``is_here`` tells whether the Session of a client is in this process, ``has_will`` whether its Will is, and
    ``is_foreign`` whether the Session here belongs to another user.
    """

    _log = Logger()

    def __init__(
        self,
        durable: DurableStore,
        states: ISessionStates,
        neighbours: Neighbours,
        adopting: Adopting,
        releasing: Releasing,
        clock: IReactorTime,
        *,
        is_here: Callable[[str], bool],
        has_will: Callable[[str], bool],
        is_foreign: Callable[[Principal], bool],
    ) -> None:
        self.node = durable.node
        self._durable = durable
        self._states = states
        self._neighbours = neighbours
        self._adopting = adopting
        self._releasing = releasing
        self._clock = clock
        self._is_here = is_here
        self._has_will = has_will
        self._is_foreign = is_foreign
        self._whereabouts = Whereabouts(durable, neighbours, clock)
        self._searches: dict[str, _Search] = {}
        #: records of new Sessions whose rows are written already
        self._claimed: dict[str, ISessionRecord] = {}
        self._asked: dict[int, Deferred[Outcome | None]] = {}
        self._stopped = False

    def stop(self) -> None:
        """Begin nothing more: this node stops."""
        self._stopped = True

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._searches

    def begin(
        self, link: Connection, principal: Principal, ends: bool, expiry_interval: float | None
    ) -> Deferred[Unavailable | None]:
        """Search for the Session of a client that has connected. ``ends``: it begins a new one.

        Fires when this node may serve the client, or tells why not.
        """
        waiting = _Waiting(link, principal, ends, expiry_interval, Deferred())
        waiting.patience = self._clock.callLater(PATIENCE, self._answer, waiting, Unavailable())
        search = self._searches.get(principal.client_id)
        if search is None:
            self._search(_Search(waiting))
            return waiting.answer
        for earlier in (search.present, search.next):
            if earlier is not None and earlier.waits:
                self._answer(earlier, Unavailable(), TAKEN)
        search.next = waiting
        return waiting.answer

    def claimed(self, client_id: str) -> ISessionRecord | None:
        """Return the record of a new Session whose row is written already, once; None if there is none."""
        return self._claimed.pop(client_id, None)

    def answered(self, message: Released) -> None:
        """Note the answer of a node."""
        answer = self._asked.get(message.number)
        if answer is not None and not answer.called:
            answer.callback(message.outcome)

    def _answer(self, waiting: _Waiting, why_not: Unavailable | None, taken: str | None = None) -> None:
        """Answer a client, once; with ``taken``, another connection has its Client Identifier."""
        if not waiting.waits:
            return
        if waiting.patience is not None and waiting.patience.active():
            waiting.patience.cancel()
        if taken is not None and not waiting.link.is_closed:
            with waiting.link.guard:
                waiting.link.close(ReasonCode.SESSION_TAKEN_OVER, taken)
        waiting.answer.callback(why_not)

    def _search(self, search: _Search) -> None:
        self._searches[search.present.principal.client_id] = search
        found = self._find(search.present)
        found.addErrback(self._not_found)
        found.addCallback(lambda why_not: self._found(search, why_not))
        found.addErrback(lambda failure: self._log.failure("a search for a Session has failed", failure))

    def _not_found(self, failure: Any) -> Unavailable:
        if not failure.check(StorageFailure, NotNow):
            self._log.failure("a search for a Session has failed", failure)
        return Unavailable()

    def _found(self, search: _Search, why_not: Unavailable | None) -> None:
        present = search.present
        client_id = present.principal.client_id
        del self._searches[client_id]
        try:
            self._answer(present, why_not)
        finally:
            record = self._claimed.pop(client_id, None)
            if record is not None:  # the client has gone, or was refused
                record.ended()
            if search.next is not None and search.next.waits:
                self._search(_Search(search.next))

    @as_deferred
    async def _find(self, waiting: _Waiting) -> Unavailable | None:
        """Bring the Session of a client here, or make room for a new one. Return why that is not possible."""
        client_id = waiting.principal.client_id
        before: Home | None = None
        while waiting.waits and not self._stopped:
            leaving = self._releasing.leaving(client_id)
            if leaving is not None:
                await settled(leaving)
            home = await self._whereabouts.look_up(client_id)
            if self._has_will(client_id):  # that of this node is settled at once when the client connects
                home = evolve(home, wills=tuple(node for node in home.wills if node != self.node))
            if home == before:
                await self._pause()
            before = home
            is_here = self._is_here(client_id)
            if self._is_foreign(waiting.principal):  # before any Will is settled for it
                return Unavailable(is_foreign=True)
            outcome: Outcome | None = None
            if home.owner == self.node and home.identifier is not None and not is_here:
                if self._releasing.leaving(client_id) is None:
                    await self._adopting.adopt(home.identifier)
            elif home.owner is not None and home.identifier is not None and not is_here:
                if self._neighbours.lives(home.owner):
                    outcome = await self._move_here(waiting, home.owner, home.identifier)
                else:
                    await self._adopting.take([home.identifier], home.owner)
            elif home.wills:
                outcome = await self._settle_will(home.wills, waiting)
            elif is_here or waiting.expiry_interval == 0 or await self._claim(waiting):
                return None
            if outcome is Outcome.REFUSED:
                return Unavailable(is_foreign=True)
        return Unavailable()

    async def _settle_will(self, nodes: Sequence[int], waiting: _Waiting) -> Outcome | None:
        """Let a node that has a Will of a client publish or discard it."""
        other = next((node for node in nodes if node != self.node), None)
        if other is not None:
            return await self._ask(other, waiting, 0)
        # It has just come from a dead node, and is not known here yet; or its end is not committed yet.
        parts = self._durable.parts
        if parts is None:
            raise NotNow
        await settled(parts.writer.flushed())
        return None

    async def _move_here(self, waiting: _Waiting, owner: int, identifier: int) -> Outcome | None:
        """Expect a Session, and ask its owner for it."""
        if not waiting.ends:
            await self._adopting.expect([identifier])
        outcome = await self._ask(owner, waiting, self._adopting.digest(identifier))
        if outcome is Outcome.MOVED:
            await self._adopting.adopt(identifier)
        elif outcome is not Outcome.LATER:
            home = await self._whereabouts.look_up(waiting.principal.client_id)  # it may have left before it died
            if (home.identifier, home.owner) == (identifier, self.node):
                await self._adopting.adopt(identifier)
            else:
                self._adopting.dismiss(identifier)
        else:  # the next try expects it again
            self._adopting.dismiss(identifier)
        return outcome

    async def _ask(self, node: int, waiting: _Waiting, digest: int) -> Outcome | None:
        """Ask a node for the Session of a client until it answers. Return None if it is dead."""
        parts = self._durable.parts
        if parts is None:
            raise NotNow
        principal = waiting.principal
        ask = Release(parts.clock.next_revision(), principal.client_id, principal.username, waiting.ends, digest)
        answer = self._asked[ask.number] = Deferred()
        repeat = PeriodicJob(
            partial(self._tell_again, node, ask), name="asking for a Session", interval=_ASK_AGAIN, clock=self._clock
        )
        repeat.start(_ASK_AGAIN)
        self._neighbours.tell_node(node, ask)
        try:
            return await answer
        finally:
            repeat.stop()
            self._asked.pop(ask.number, None)

    def _tell_again(self, node: int, ask: Release) -> None:
        if self._neighbours.lives(node) and not self._stopped:
            self._neighbours.tell_node(node, ask)
        else:
            answer = self._asked.get(ask.number)
            if answer is not None and not answer.called:
                answer.callback(None)

    def _pause(self) -> Deferred[None]:
        paused: Deferred[None] = Deferred()
        self._clock.callLater(_LOOK_AGAIN, paused.callback, None)
        return paused

    async def _claim(self, waiting: _Waiting) -> bool:
        """Write the row of a new Session. Return False if another node was first."""
        principal, expiry = waiting.principal, waiting.expiry_interval
        record = self._states.record(principal.client_id)
        row = (
            record.identifier, principal.client_id, principal.username, waiting.link.listener,
            None if expiry is None else int(expiry), self.node,
        )  # fmt: skip
        if not await self._whereabouts.claim(row):
            return False
        self._claimed[principal.client_id] = record
        return True
