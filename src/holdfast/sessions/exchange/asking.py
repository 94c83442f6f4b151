"""Questions of one Client about retained messages, published to ``$retained/get``, ``count`` and ``tree``.

How it works. A question is acknowledged when it is accepted: its Response Topic matches a Subscription of the Client
[MQTT5-3.3.2-3], it is well formed, and the Client may subscribe to what it asks for. Questions are answered one after
the other, each in parts that take turns with other work. An answer is a message for this Session like any other: it
keeps to the window and the queue, and it goes nowhere else. A question is never retained, stored or routed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.core.extensions import BadRequest, Question, question_of
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import (
    SHARED_PREFIX,
    has_wildcard,
    is_of_broker,
    level_count,
    levels_before_wildcard,
    matching,
)
from holdfast.identity.interfaces import Grant, in_time
from holdfast.retained.rules import Subscriber
from holdfast.scheduling.fair_line import LineFull
from holdfast.scheduling.long_work import COMPARED_PER_STEP, Meter, weight_of_comparison
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.unsubscribing import LongPackets
from holdfast.sessions.questions import TooLarge, json_of
from holdfast.sessions.routing_table import merged
from holdfast.sessions.state import Subscription
from holdfast.wire import Properties, ReasonCode

#: The questions of one Client that wait while one is answered; more are refused.
MOST_WAITING = 4
#: The bytes by which a packet grows with the length of its payload.
_GROWTH = 3
#: in place of a Maximum Packet Size
_UNLIMITED = 1 << 28

#: Answers a PUBLISH with a Reason Code and a Reason String; with QoS 0 it does nothing.
Acknowledge = Callable[[ReasonCode, str], None]

BAD_REQUEST, NOT_AUTHORIZED, BUSY = "bad-request", "not-authorized", "busy"
UNAVAILABLE, TOO_LARGE = "unavailable", "too-large"


@frozen
class _Asked:
    """A question's way back. ``carriers`` are the Topic Filters of the Client that match the Response Topic."""

    response_topic: str
    correlation_data: bytes | None
    qos: int
    carriers: tuple[str, ...]


class Asking:
    """Takes the questions of one Client over one Network Connection."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._long = LongPackets(link, session, parts)
        self._waiting: deque[tuple[_Asked, Question]] = deque()
        self._is_answering = False

    def close(self) -> None:
        """Answer nothing more: the connection is over. The present answer ends with its next part (:meth:`grant`)."""
        self._waiting.clear()

    def take(self, message: ApplicationMessage, acknowledge: Acknowledge) -> None:
        """Take a question. ``acknowledge`` is called once, now or before the Client's next packet."""
        topic = message.properties.response_topic
        most = self._link.limits.max_topic_levels
        wrong = None
        if topic is None:
            wrong = "a question needs a Response Topic"
        elif is_of_broker(topic):
            wrong = "the Response Topic is the broker's own"
        elif level_count(topic) > most:
            wrong = f"the Response Topic has more than {most} levels"
        if topic is None or wrong is not None:
            self._refuse(None, BAD_REQUEST, wrong or "", acknowledge)
            return
        carriers: list[str] = []
        self._long.in_portions(
            self._find_carriers(topic, carriers), partial(self._found, message, topic, carriers, acknowledge)
        )

    def _find_carriers(self, topic: str, carriers: list[str]) -> Iterator[int]:
        """Find the Subscriptions that match the Response Topic, in steps."""
        is_match, meter = matching(topic), Meter(COMPARED_PER_STEP)
        for key in tuple(self._session.subscriptions):
            due = meter.add(weight_of_comparison(key))
            if due:
                yield due
            if not key.startswith(SHARED_PREFIX) and is_match(key):
                carriers.append(key)

    def _found(self, message: ApplicationMessage, topic: str, carriers: list[str], acknowledge: Acknowledge) -> None:
        if not carriers:
            self._refuse(None, BAD_REQUEST, "no Subscription of yours matches the Response Topic", acknowledge)
            return
        asked = _Asked(topic, message.properties.correlation_data, message.qos, tuple(carriers))
        try:
            question = self._checked(message)
        except BadRequest as bad:
            self._refuse(asked, BAD_REQUEST, str(bad), acknowledge)
            return
        if len(self._waiting) >= MOST_WAITING:
            why = f"{MOST_WAITING} of your questions wait already"
            self._refuse(asked, BUSY, why, acknowledge, ReasonCode.QUOTA_EXCEEDED)
            return
        grant = self._parts.authorizer.may_subscribe(self._session.principal, question.topic_filter, message.qos)
        judged = partial(self._judged, asked, question, acknowledge)
        if isinstance(grant, Deferred):
            self._link.ask(grant, Grant.REFUSED, judged)
        else:
            judged(grant)

    def _checked(self, message: ApplicationMessage) -> Question:
        """Return the question, if it is well formed and within the limits of the Client. Raises BadRequest."""
        limits = self._link.limits
        if message.retain:
            raise BadRequest("a question has RETAIN 0")
        question = question_of(message.topic, message.payload, limits.max_topic_levels)
        if question.parent is None and has_wildcard(question.topic_filter):
            if not limits.wildcard_subscription:
                raise BadRequest("wildcards are not offered here")
            if levels_before_wildcard(question.topic_filter) < limits.min_replay_levels:
                raise BadRequest(f"a question needs {limits.min_replay_levels} levels before its first wildcard here")
        self._parts.questions.check(question)
        return question

    def _judged(self, asked: _Asked, question: Question, acknowledge: Acknowledge, grant: Grant) -> None:
        """Take the authorizer's answer. It is that to a SUBSCRIBE of the same Topic Filter."""
        if grant is Grant.REFUSED:
            self._parts.counters.subscriptions_not_authorized += 1
            self._parts.denied(self._session.principal, "subscribe", question.topic_filter)
            why = "you may not subscribe to what you ask for"
            self._refuse(asked, NOT_AUTHORIZED, why, acknowledge, ReasonCode.NOT_AUTHORIZED)
            return
        acknowledge(ReasonCode.SUCCESS, "")
        self._waiting.append((asked, question))
        if not self._is_answering:
            self._is_answering = True
            self._answer_all().addErrback(self._link.close_after_error)

    def _refuse(
        self,
        asked: _Asked | None,
        error: str,
        why: str,
        acknowledge: Acknowledge,
        reason: ReasonCode = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ) -> None:
        """Refuse a question, and tell that on its Response Topic if there is one."""
        self._parts.counters.questions_refused += 1
        self._link.client_log.info("its question is refused", why)
        acknowledge(reason, why)
        if asked is not None:
            self._deliver(asked, _error(error, why))

    # --- answering

    @as_deferred
    async def _answer_all(self) -> None:
        """Answer the questions that wait, one after the other."""
        try:
            await self._parts.questions.pause()
            while self._waiting:
                asked, question = self._waiting.popleft()
                answer = await self._answer(asked, question)
                self._deliver(asked, answer)
                await self._parts.questions.pause()
        finally:
            self._is_answering = False

    async def _answer(self, asked: _Asked, question: Question) -> bytes:
        try:
            answer: bytes = await self._parts.questions.answer(
                question, self, self._session.principal, self._room(asked)
            )
        except LineFull as busy:
            refused = _error(BUSY, str(busy))
        except TooLarge:
            refused = _error(TOO_LARGE, "not even one entry fits your Maximum Packet Size")
        except StorageFailure as failure:
            self._link.client_log.info("its question cannot be answered", failure)
            refused = _error(UNAVAILABLE, "the broker cannot read this now")
        else:
            self._parts.counters.questions_answered += 1
            return answer
        self._parts.counters.questions_refused += 1
        return refused

    def grant(self, topic_filter: str) -> Grant:
        """Tell which of the messages that match a Topic Filter the Client may receive now: none if it has left."""
        if self._link.is_closed:
            return Grant.REFUSED
        return Subscriber(self._parts.authorizer, self._session.principal).grant(topic_filter)

    def may_receive(self, topic: str) -> bool | Deferred[bool]:
        """Tell whether the Client may receive messages of a topic now. No answer in time means False."""
        answer = Subscriber(self._parts.authorizer, self._session.principal).may_receive(ApplicationMessage(topic, b""))
        if isinstance(answer, Deferred):
            in_time(answer, self._parts.clock).addErrback(self._denied_by_error)
        return answer

    def _denied_by_error(self, failure: Failure) -> bool:
        self._link.client_log.error("authorizing it failed", failure.getErrorMessage())
        return False

    def _carriers(self, asked: _Asked) -> list[Subscription]:
        subscriptions = self._session.subscriptions
        return [subscriptions[key] for key in asked.carriers if key in subscriptions]

    def _room(self, asked: _Asked) -> int:
        """Return how many bytes an answer may have [MQTT5-3.1.2-24]."""
        most = self._link.maximum_packet_size
        if most is None:
            return _UNLIMITED
        options = merged(self._carriers(asked) or [Subscription("", 0)])
        empty = OutgoingMessage(_message(asked, b"", 1)).packet(5, 1, False, options.identifiers, 1, 0)
        return max(0, most - len(empty) - _GROWTH)

    def _deliver(self, asked: _Asked, payload: bytes) -> None:
        """Send an answer, unless the Client has unsubscribed from its topic, or may not receive it any more."""
        carriers = self._carriers(asked)
        session, router = self._session, self._parts.router
        if not carriers or self._link.is_closed or session.link is not self._link:
            return
        options = merged(carriers)
        qos = min(asked.qos, options.qos)
        message = _message(asked, payload, qos)
        outgoing = OutgoingMessage(message)
        deliver = partial(session.deliver, outgoing, DeliveryOptions(qos, False, options.identifiers))
        if not router.table.is_checked(session, *carriers):
            deliver()
        elif not router.if_allowed(session, message, deliver, True):
            self._parts.counters.deliveries_not_authorized += 1


def _message(asked: _Asked, payload: bytes, qos: int) -> ApplicationMessage:
    properties = Properties(
        payload_format_indicator=1, content_type="application/json", correlation_data=asked.correlation_data
    )
    return ApplicationMessage(asked.response_topic, payload, qos, properties=properties)


def _error(error: str, reason: str) -> bytes:
    return json_of({"error": error, "reason": reason})
