"""The end of Sessions: what a Session has is given to others or freed in portions.

How it works. A Session that ends is out of the registry at once, gets no message any more, and is no member of its
groups. So its Client can have a new Session in the same turn. The rest depends on its size, and is done in steps: the
messages of shared subscriptions go to other members, the subscriptions and messages are removed, and last the
Session's row is deleted.

If that takes more than a turn, the stored Session is marked as expired first. A process that is killed meanwhile has
moved some messages: each left this Session and entered another one in the same commit. The next process finds the
marked Session and ends it again, with the rest of its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.log.client_log import client_text
from holdfast.log.log_throttle import LogThrottle
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.counters import Counters
from holdfast.sessions.routing.router import Router
from holdfast.sessions.session.session import Session
from holdfast.tickets import COMMITTED, CommitTicket

#: the time of expiry of a Session that has ended, in milliseconds since the epoch
LONG_AGO = 0

#: Topic Filters that are removed in one step: each is one walk through the subscription tree
_FILTERS_PER_STEP = 4


class Endings:
    """Ends Sessions, and moves the shared messages of Sessions whose Clients are away."""

    _log = Logger()

    def __init__(self, router: Router, work: LongWork, counters: Counters, seconds: Callable[[], float]) -> None:
        self._router = router
        self._work = work
        self._counters = counters
        self._losses = LogThrottle(self._log, seconds, write=self._log.info)
        self._stopped = False

    def end(self, session: Session) -> CommitTicket:
        """End a Session. The ticket is settled when the next process would not find it either."""
        session.close()
        outcome = [COMMITTED]
        if self._do(session, self._steps(session, outcome)):
            return outcome[0]
        return session.record.detached(0, LONG_AGO)

    def end_in_steps(self, session: Session) -> Iterator[int]:
        """End a Session in steps of the caller's work."""
        session.close()
        session.record.detached(0, LONG_AGO)
        yield from self._steps(session, [])

    def left(self, session: Session) -> None:
        """Give the shared messages of a Session whose Client is away to members that are online."""
        if session.groups:
            self._do(session, self._until_stopped(self._router.redeliver(session, ended=False)))

    def stop(self) -> None:
        """Leave the rest to the next process."""
        self._stopped = True

    def _do(self, session: Session, steps: Iterator[int]) -> bool:
        """Do the work, after earlier work for this Session. Returns whether it is done now."""
        try:
            done = self._work.do(session, steps)
        except Exception:  # noqa: BLE001 - the Client who begins a new Session is not to blame
            self._failed(Failure(), session)
            return False
        if done is not None:
            done.addErrback(self._failed, session)
        return done is None

    def _steps(self, session: Session, outcome: list[CommitTicket]) -> Iterator[int]:
        yield from self._until_stopped(self._router.redeliver(session, ended=True))
        # Only now: its subscriptions tell which other members can take its messages.
        yield from self._until_stopped(self._unsubscribe(session))
        waiting = session.waiting
        yield from self._until_stopped(session.discard())
        if not self._stopped:
            outcome[:] = [session.record.ended()]
            self._dropped(session, waiting)

    def _dropped(self, session: Session, count: int) -> None:
        """Count the messages that have waited for the Client of a Session that has ended."""
        if count:
            self._counters.messages_dropped_session_ended += count
            client = client_text(session.client_id)
            self._losses.log("", f"the Session of {client} has ended; messages in its queue that are dropped: {count}")

    def _unsubscribe(self, session: Session) -> Iterator[int]:
        for number, topic_filter in enumerate(session.subscriptions):
            if not number % _FILTERS_PER_STEP:
                yield 1
            self._router.table.unsubscribe(session, topic_filter)
        session.subscriptions.clear()

    def _until_stopped(self, steps: Iterator[int]) -> Iterator[int]:
        for count in steps:
            yield count
            if self._stopped:
                return

    def _failed(self, failure: Failure, session: Session) -> None:
        client = client_text(session.client_id)
        self._log.failure("the Session of {client} was not ended in full", failure, client=client)
