"""What the authorizer has said about the messages of one Session, and what it is asked again.

How it works. Messages wait in the queue or in flight, and each was allowed when it came. Later the authorizer's answers
may change (its ``epoch``), or the Client comes back as another Principal. Before the next message is sent, the Session
sees that the epoch differs from ``allowed_in``. The authorizer is then asked about each message that waits at this
moment, when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import behind_time, is_granted_to_all
from holdfast.identity.interfaces import IAuthorizer, Principal, in_time
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.deliveries import AuthorizationOrder
from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued, SessionQueue
from holdfast.watch.log import LastingFailure

#: In place of an epoch. The Session is that of an earlier process, and its Client has not been back: of its Principal
#: only the names are known.
RESTORED: object = object()
#: In place of an epoch. The Session has another Principal than at the last grants.
STALE: object = object()


class IJudged(Protocol):
    """The Session."""

    link: Connection | None
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


# Messages of one Session that the authorizer is asked about once more, before they are sent.
#
# How it works. A message waits for its Client, in the queue or in flight. Meanwhile the permissions may change, or the
# Client comes back as another Principal, for example from another address. Then everything that waits at this moment is
# asked about when its turn to be sent comes: so a long queue costs one question in each step, and no walk. What is not
# allowed any more is dropped, and counted. An exchange with QoS 2 whose PUBREC has come goes on: its message is with
# the Client already.


class _Question:
    """The question about one message. ``allowed`` is None until it is answered."""

    __slots__ = ("allowed", "subject")

    def __init__(self, subject: Queued | Inflight) -> None:
        self.subject = subject
        self.allowed: bool | None = None


class Rechecks:
    """Asks whether the Client of one Session may still have a message. ``on_answer`` is called after a late answer.

    ``last`` is the last message of the queue that has to be asked about, None if there is none.
    """

    __slots__ = ("_authorizer", "_clock", "_on_answer", "_question", "_report", "last")

    def __init__(self, authorizer: IAuthorizer, clock: IReactorTime, on_answer: Callable[[], None]) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._on_answer = on_answer
        self._question: _Question | None = None
        self._report = LastingFailure("authorizing waiting messages", "so they are dropped", (Exception,))
        self.last: Queued | None = None

    def close(self) -> None:
        """Tell the Session nothing any more: it has ended. Each refers to the other otherwise."""
        self._on_answer = _tell_none

    def allows(self, principal: Principal, queued: Queued) -> bool | None:
        """Tell whether the first message of the queue may be sent. None: the answer is not here yet."""
        allowed = self._answer(principal, queued, queued.outgoing.message)
        if allowed is not None and queued is self.last:
            self.last = None
        return allowed

    def allows_again(self, principal: Principal, entry: Inflight) -> bool | None:
        """Tell whether a message in flight may be sent, or sent again. None: the answer is not here yet."""
        if entry.outgoing is not None:
            message = entry.outgoing.message
        else:
            outgoing, _ = OutgoingMessage.of_packet(entry.packet, entry.protocol_version, entry.expires_at)
            message = outgoing.message
        allowed = self._answer(principal, entry, message)
        if allowed is not None:
            entry.unasked = False
        return allowed

    def _answer(self, principal: Principal, subject: Queued | Inflight, message: ApplicationMessage) -> bool | None:
        question = self._question
        if question is None or question.subject is not subject:
            question = self._question = _Question(subject)
            self._ask(question, principal, message)
        if question.allowed is not None:
            self._question = None
        return question.allowed

    def _ask(self, question: _Question, principal: Principal, message: ApplicationMessage) -> None:
        if is_granted_to_all(message.topic):
            question.allowed = True
            return
        if message.topic[0] == "$":
            message = evolve(message, topic=behind_time(message.topic))
        try:
            answer = self._authorizer.may_receive(principal, message)
        except Exception:  # noqa: BLE001 - whatever fails, the message is not sent
            question.allowed = self._denied(Failure())
            return
        if not isinstance(answer, Deferred):
            question.allowed = answer
            return

        def answered(allowed: bool) -> None:
            question.allowed = allowed
            if question is self._question:
                self._on_answer()

        in_time(answer, self._clock).addErrback(self._denied).addCallback(answered)

    def _denied(self, failure: Failure) -> bool:
        self._report.failed(failure)
        return False


def _tell_none() -> None:
    """Tell no Session: it has ended."""
