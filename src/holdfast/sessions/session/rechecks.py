"""Messages of one Session that the authorizer is asked about once more, before they are sent.

How it works. A message waits for its Client, in the queue or in flight. Meanwhile the permissions may change, or the
Client comes back as another Principal, for example from another address. Then everything that waits at this moment is
asked about when its turn to be sent comes: so a long queue costs one question in each step, and no walk. What is not
allowed any more is dropped, and counted. An exchange with QoS 2 whose PUBREC has come goes on: its message is with the
Client already.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.auth.answer_in_time import in_time
from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.log.lasting_failure import LastingFailure
from holdfast.messages import ApplicationMessage
from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.topics import behind_time, is_granted_to_all


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
