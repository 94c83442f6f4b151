"""The ends of leases: retained messages are cleared when their publisher's Session, or its connection, has ended.

The states of a lease, by the call that ends each:

    given    the retainer stores it with its message
    over     the next message of its topic is stored
    pending  ``client_lost``: with ``connected``, the time of grace runs
    given    ``client_back``: its client has connected again in time; another user ends it
    due      the time of grace is over, or ``session_ended`` with ``session``
    over     its message is cleared, if it is still the present one

A lease ends in one transaction: the topic is cleared on the condition that it has the revision of the lease. The row of
the lease is deleted in the commit that stores the deliveries of the empty message. A process that is killed between the
two finds the row. Its tombstone tells which lease has cleared the topic, so the next process recognizes it, and routes
the empty message.

Leases found at start wait ``restart_grace`` seconds for their clients. So do those of Sessions that have ended with the
last process. Few ends are under way at once; the others wait in a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.core.extensions import RETAIN_WHILE, Conditions, LeaseTerm
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.compare_and_set import Decision
from holdfast.retained.leases import Lease, LeaseBook, Wanted
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.router import Router
from holdfast.watch.log import ClientLog, client_text
from holdfast.wire import NO_PROPERTIES, Properties

#: the most leases of a client
MOST_PER_CLIENT = 5000

#: how many ends are under way at once
_AT_ONCE = 32

#: seconds after which the end of a lease is tried again
_AGAIN = 5.0


class Leases:
    """Ends leases. ``grace`` and ``restart_grace`` are in seconds.

    With ``silent_clears``, the empty messages are not sent to subscribers.
    """

    def __init__(
        self,
        *,
        clock: IReactorTime,
        work: LongWork,
        router: Router,
        retained: RetainedMessages,
        counters: Counters,
        log: ClientLog,
        grace: float = 30,
        restart_grace: float = 60,
        silent_clears: bool = False,
    ) -> None:
        self._clock = clock
        self._work = work
        self._router = router
        self._retained = retained
        self._book: LeaseBook = retained.leases
        self._counters = counters
        self._log = log
        self._grace = grace
        self._restart_grace = restart_grace
        self.silent_clears = silent_clears
        self._deadlines = Deadlines("the ends of leases", clock, work, self._due)
        # Of their own: a client that comes and goes again and again must not postpone them.
        self._left_deadlines = Deadlines("the ends of leases of the last process", clock, work, self._left_due)
        #: clients that are away, while their time of grace runs
        self._away: set[str] = set()
        #: of Sessions that have ended with the last process, by client
        self._left: dict[str, list[Lease]] = {}
        self._line: dict[str, Lease] = {}  # by topic, in the order of their ends
        self._ending = 0
        self._starting = False
        self._again: IDelayedCall | None = None
        self._stopped = False

    def change(self, grace: float) -> None:
        """Use another time of grace (seconds) from now on."""
        self._grace = grace

    def has_room(self, client_id: str, topic: str) -> bool:
        """Tell whether a client may have the lease of a topic."""
        return self._book.count(client_id) < MOST_PER_CLIENT or self._book.has(client_id, topic)

    def given(self, session: Session, topic: str, connected: bool) -> None:
        """Note a new lease. Its publisher may be gone by now: the message has waited for a decision."""
        if connected:
            return
        lease = self._book.by_topic.get(topic)
        if lease is None or lease.client_id != session.client_id:
            return
        if lease.term is LeaseTerm.CONNECTED:
            if lease.client_id not in self._away:
                self.client_lost(lease.client_id)
        elif session.is_over:
            self._end([lease])

    def client_lost(self, client_id: str) -> None:
        """Let the time of grace of a client begin: its Network Connection has ended."""
        if not self._stopped and any(lease.term is LeaseTerm.CONNECTED for lease in self._book.of(client_id)):
            self._wait(client_id, self._grace)

    def client_back(self, client_id: str, is_owner: Callable[[str | None], bool]) -> None:
        """Keep the leases of a client that has connected in time.

        Another user may have its Client Identifier by now. ``is_owner`` tells whether it may resume what belongs to a
        User Name. Other leases end now: whoever has them cannot come back under this Client Identifier.
        """
        if client_id in self._away:
            self._away.remove(client_id)
            self._deadlines.discard(client_id)
            left = [each for each in self._book.of(client_id) if each.term is LeaseTerm.CONNECTED]
            self._end([each for each in left if not is_owner(each.username)])

    def session_ended(self, client_id: str) -> None:
        """End the leases that a client has for its Session, which has ended. Later ones belong to its next Session."""
        if self._book and not self._stopped:
            self._end([lease for lease in self._book.of(client_id) if lease.term is LeaseTerm.SESSION])

    def load(self) -> Sequence[Lease]:
        """Read the leases of the last process. Raises StoreUnusable."""
        return self._book.load() if self._retained.admission.enabled else ()

    def restore(self, leases: Sequence[Lease], session_of: Callable[[str], Session | None]) -> None:
        """Take over these leases. ``session_of`` returns the stored Session of a client."""
        for lease in leases:
            client_id = lease.client_id
            if lease.term is LeaseTerm.SESSION:
                session = session_of(client_id)
                if session is not None and session.record.identifier == lease.session != 0:
                    continue
                self._left.setdefault(client_id, []).append(lease)
                self._left_deadlines.set(client_id, self._restart_grace)
            elif client_id not in self._away:
                self._wait(client_id, self._restart_grace)

    def inherit(self, leases: Sequence[Lease], session_of: Callable[[str], Session | None] = lambda _: None) -> None:
        """Take over leases of another node. ``session_of`` returns the stored Session of a client that has come too."""
        for lease in leases:
            self._book.note(lease)
        self.restore([lease for lease in leases if self._book.by_topic.get(lease.topic) is lease], session_of)

    def leave(self, client_id: str) -> None:
        """Forget the leases of a client that another node serves now. Their rows stay."""
        if client_id in self._away:
            self._away.remove(client_id)
            self._deadlines.discard(client_id)
        for lease in list(self._book.of(client_id)):
            self._line.pop(lease.topic, None)
            self._book.leave(lease)

    def stop(self) -> None:
        """End no more leases: the broker stops, and the next process restores them."""
        self._stopped = True
        self._deadlines.stop()
        self._left_deadlines.stop()
        self._line.clear()
        self._away.clear()
        self._left.clear()
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _wait(self, client_id: str, delay: float) -> None:
        self._away.add(client_id)
        self._deadlines.set(client_id, delay)

    def _due(self, client_id: str) -> Iterator[int]:
        self._away.remove(client_id)
        self._end([lease for lease in self._book.of(client_id) if lease.term is LeaseTerm.CONNECTED])
        return iter(())

    def _left_due(self, client_id: str) -> Iterator[int]:
        self._end(self._left.pop(client_id))
        return iter(())

    def _end(self, leases: list[Lease]) -> None:
        self._line.update((lease.topic, lease) for lease in leases)
        self._begin()

    def _begin(self) -> None:
        if self._line and not self._starting and self._again is None:
            self._starting = True
            self._work.do(self, self._steps())

    def _steps(self) -> Iterator[int]:
        while self._line and self._ending < _AT_ONCE and self._again is None:
            yield 1
            if not self._line:  # the broker stops
                break
            topic = next(iter(self._line))
            lease = self._line.pop(topic)
            if self._book.by_topic.get(topic) is lease:
                self._clear(lease)
        self._starting = False

    def _clear(self, lease: Lease) -> None:
        # The property tells this tombstone from all others, so that the next process recognizes it.
        mark = Properties(user_properties=((RETAIN_WHILE, f"{lease.term.value} {lease.revision}"),))
        message = ApplicationMessage(lease.topic, b"", 1, True, lease.client_id, lease.username, mark)
        self._ending += 1
        decided = self._retained.retain_if(
            message, Conditions(revision=lease.revision), repeated=True, origin=ChangeOrigin.LEASE
        )
        ended = decided.addCallback(self._decided, lease, message).addErrback(self._failed, lease)
        ended.addCallback(self._done)

    def _decided(self, decision: Decision, lease: Lease, message: ApplicationMessage) -> None:
        """Route the empty message, and delete the lease in the same commit."""
        if self._stopped:  # its deliveries may not be stored any more: the next process routes it
            return
        if decision.succeeded:
            self._counters.leases_ended += 1
            if not decision.overtaken and not self.silent_clears:
                self._router.route(evolve(message, properties=NO_PROPERTIES))
        self._book.over(lease)

    def _failed(self, failure: Failure, lease: Lease) -> None:
        """Try it again later: the database is away, or others change this topic all the time."""
        self._log.write(
            "a lease is not ended",
            "Leases",
            lambda: (
                f"the lease of {client_text(lease.client_id)} on {client_text(lease.topic)} is not ended yet:"
                f" {failure.getErrorMessage()}"
            ),
            "warn",
        )
        if not self._stopped:
            self._line.setdefault(lease.topic, lease)
            if self._again is None:
                self._again = self._clock.callLater(_AGAIN, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self._begin()

    def _done(self, _: None) -> None:
        self._ending -= 1
        self._begin()


def wanted(term: LeaseTerm | None, session: Session) -> Wanted | None:
    """Return what the PUBLISH of a Session asks for."""
    return None if term is None else Wanted(term, session.record.identifier)
