"""What the authorizer has said about the messages of one Session, and what it is asked again.

How it works. Messages wait in the queue or in flight, and each was allowed when it came. Later the authorizer's answers
may change (its ``epoch``), or the Client comes back as another Principal. Before the next message is sent, the Session
sees that the epoch differs from ``allowed_in``. The authorizer is then asked about each message that waits at this
moment, when its turn comes (:mod:`.rechecks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.delivery.authorization_order import AuthorizationOrder
from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.session.rechecks import Rechecks
from holdfast.sessions.session.session_queue import SessionQueue

#: In place of an epoch. The Session is that of an earlier process, and its Client has not been back: of its Principal
#: only the names are known.
RESTORED: object = object()
#: In place of an epoch. The Session has another Principal than at the last grants.
STALE: object = object()


class IJudged(Protocol):
    """The Session."""

    link: IClientLink | None
    principal: Principal
    queue: SessionQueue
    inflight: InflightMessages
    is_over: bool

    def fill(self) -> None:
        """Use the room in the window."""

    def note_loss(self) -> None:
        """Note that a message for this Session is lost."""


class Permissions:
    """The permissions of one Session's messages. ``allowed_in`` is the epoch in which all that wait were allowed.

    ``rechecks`` is made when the first message has to be asked about again. ``on_error`` is called after an unexpected
    error in a late call.
    """

    __slots__ = ("_clock", "_on_error", "_order", "_session", "allowed_in", "authorizer", "rechecks")

    def __init__(
        self, session: IJudged, authorizer: IAuthorizer, clock: IReactorTime, on_error: Callable[[Failure], None]
    ) -> None:
        self._session: IJudged | None = session
        self._clock = clock
        self._on_error = on_error
        self._order: AuthorizationOrder | None = None
        self.authorizer = authorizer
        self.allowed_in: object = authorizer.epoch  #: or RESTORED, or STALE
        self.rechecks: Rechecks | None = None

    @property
    def order(self) -> AuthorizationOrder:
        """The deliveries that wait for the authorizer. Made when it is first asked, since most are not."""
        if self._order is None:
            session = self._session
            self._order = AuthorizationOrder(
                _do_nothing if session is None else session.fill, self._on_error, self._clock
            )
            if session is None or session.is_over:
                self._order.close()
        return self._order

    @property
    def is_awaited(self) -> bool:
        """Whether a delivery waits for the authorizer."""
        return self._order is not None and len(self._order) > 0

    @property
    def asks_again(self) -> bool:
        """Whether the authorizer is asked about queued messages again."""
        return self.rechecks is not None and self.rechecks.last is not None

    def close(self) -> None:
        """Tell the Session nothing any more: it has ended. Each refers to the other otherwise."""
        if self._order is not None:
            self._order.close()
        if self.rechecks is not None:
            self.rechecks.close()
        self._session = None
        self._on_error = _ignore

    def ask_again(self) -> None:
        """Let the authorizer be asked about all waiting messages before they are sent: an answer may have changed."""
        session, authorizer = self._session, self.authorizer
        assert session is not None
        if authorizer.checks_delivery and self.allowed_in is not RESTORED:
            session.note_loss()  # perhaps a message was withheld that is allowed now: replays must not leave it out
        self.allowed_in = authorizer.epoch
        queue, inflight = session.queue, session.inflight
        if queue or inflight.entries:
            self._begin_rechecks().last = queue.last if queue else None
            inflight.may_send = self.may_send
            inflight.ask_again()

    def ask_about(self, queued: Queued) -> None:
        """Let the authorizer be asked about the queue up to this message, its last one."""
        self._begin_rechecks().last = queued

    def may_send(self, entry: Inflight) -> bool | None:
        """Tell whether a message in flight may be sent. None: the authorizer has not answered yet."""
        if self.authorizer.epoch != self.allowed_in:
            self.ask_again()
        if not entry.unasked:
            return True
        assert self.rechecks is not None
        assert self._session is not None
        return self.rechecks.allows_again(self._session.principal, entry)

    def _begin_rechecks(self) -> Rechecks:
        if self.rechecks is None:
            self.rechecks = Rechecks(self.authorizer, self._clock, self._go_on)
        return self.rechecks

    def _go_on(self) -> None:
        """Go on after a late answer of the authorizer. An unexpected error ends the connection."""
        session = self._session
        link = None if session is None else session.link
        if session is not None and link is not None:
            with link.guard:
                session.fill()


def _do_nothing() -> None:
    """Tell no Session: it has ended."""


def _ignore(failure: Failure) -> None:
    """Tell no Session: it has ended."""
