"""Calls that publish messages: ``/publish`` and ``/publish/bulk``. Paths, fields and answers are EMQX's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web import http

from holdfast.admin.arguments import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    STRING,
    array,
    json_of,
    object_of,
    one_of,
    record,
    request,
    whole,
)
from holdfast.admin.call import (
    Answer,
    Call,
    Refusals,
    RefusedCall,
    Scope,
    answer,
    bad_request,
    database_away,
)
from holdfast.admin.routing import Content, Route, routes_of
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket, TicketsTogether
from holdfast.core.topics import SHARED_PREFIX, level_count
from holdfast.retained.fields import BadRecord, Fields, checked_properties
from holdfast.retained.limits import NotRetained
from holdfast.scheduling.waiting import as_deferred, durable
from holdfast.wire.datatypes import control_character
from holdfast.wire.reasons import ReasonCode

PUBLISH_PATH = "/api/v5/publish"

#: the most messages of a bulk, and the most bytes of its body
MOST_MESSAGES = 1000
MOST_BYTES = 8 << 20
#: messages that are read in one turn of the reactor
_READ_TOGETHER = 100
_MOST_SECONDS = 0xFFFFFFFF
_EXAMPLE = '{"topic": "plant/7/setpoint", "payload": "21"}'

_MESSAGE = request(
    {
        "topic": {"type": "string", "minLength": 1},
        "payload": STRING,
        "payload_encoding": one_of("plain", "base64"),
        "qos": whole(0, 2, 0),
        "retain": BOOLEAN,
        "properties": {"type": "object"},
    },
    required=("topic", "payload"),
)
_PUBLISHED = record({"id": STRING})
_UNMATCHED = record({"id": STRING, "reason_code": INTEGER, "message": STRING}, required=("reason_code", "message"))


class IMessages(Protocol):
    """Publishes messages of operators."""

    def publish(self, message: ApplicationMessage) -> Deferred[tuple[CommitTicket, bool]]:
        """Publish, when there is room. Fires with the ticket, and whether there was a subscriber."""


@frozen
class PublishLimits:
    """The limits of messages, which are those of clients in no zone.

    While the database is away, nothing ``can_be_stored``; other messages are published as always.
    """

    max_topic_levels: int
    max_bytes: int
    max_qos: int
    control_characters: bool
    retain_available: bool
    can_be_stored: bool = True


def _bad_record(error: BadRecord) -> RefusedCall:
    return bad_request(str(error), error.field or None)


def _exceeds(error: NotRetained) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "EXCEED_LIMIT", str(error))


_REFUSALS: Refusals = {BadRecord: _bad_record, NotRetained: _exceeds}


class PublishCalls:
    """Publishes messages. ``now`` returns milliseconds since the epoch; ``pause`` fires in a later turn."""

    def __init__(
        self,
        messages: IMessages,
        limits: Callable[[], PublishLimits],
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
    ) -> None:
        self._messages = messages
        self._limits = limits
        self._now = now
        self._pause = pause
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=PUBLISH_PATH,
        scope=Scope.PUBLISH,
        summary="Publish a message; the answer comes when the message is stored",
        body=Content(_MESSAGE, "the message", most_bytes=None),
        answers={
            200: Content(_PUBLISHED, "it had subscribers"),
            202: Content(_UNMATCHED, "nobody subscribes to its topic"),
        },
        refusals=_REFUSALS,
        finishes=True,
    )
    @as_deferred
    async def publish(self, call: Call) -> Answer:
        """Publish a message."""
        message = self._message(object_of(call, _EXAMPLE), "", str(call.caller))
        ticket, matched = await self._messages.publish(message)
        await durable(ticket)
        result = _result(matched)
        note = {"topic": message.topic, "retain": message.retain, "id": result["id"]}
        return answer(result, http.OK if matched else http.ACCEPTED, note=note)

    @Route(
        method="POST",
        path=f"{PUBLISH_PATH}/bulk",
        scope=Scope.PUBLISH,
        summary="Publish up to 1000 messages in their order; if one of them is invalid, none is published",
        body=Content({**array(_MESSAGE), "maxItems": MOST_MESSAGES}, "the messages", most_bytes=MOST_BYTES),
        answers={
            200: Content(array(_PUBLISHED), "all had subscribers"),
            202: Content(array(ANYTHING), "some had no subscribers, or could not be retained"),
        },
        refusals=_REFUSALS,
        finishes=True,
    )
    @as_deferred
    async def publish_bulk(self, call: Call) -> Answer:
        """Publish messages, one after the other."""
        found = json_of(call)
        if not isinstance(found, list) or len(found) > MOST_MESSAGES:
            allowed = f"a JSON list of at most {MOST_MESSAGES} messages"
            raise bad_request(f"the body is {allowed}, such as [{_EXAMPLE}]", allowed=allowed)
        messages = []
        operator = str(call.caller)
        for number, each in enumerate(found):
            if number and not number % _READ_TOGETHER:
                await self._pause()
            if not isinstance(each, dict):
                raise bad_request(f"[{number}] is not a JSON object such as {_EXAMPLE}", f"[{number}]")
            messages.append(self._message(each, f"[{number}].", operator))
        results: list[dict[str, Any]] = []
        tickets = TicketsTogether()
        for message in messages:
            try:
                ticket, matched = await self._messages.publish(message)
            except NotRetained as refusal:
                results.append({"reason_code": int(ReasonCode.QUOTA_EXCEEDED), "message": str(refusal)})
                continue
            tickets.add(ticket)
            results.append(_result(matched))
        await durable(tickets.ticket())
        whole = all("reason_code" not in each for each in results)
        topics = [message.topic for message in messages]
        note = {"count": len(messages), "topics": topics[:10]}
        return answer(results, http.OK if whole else http.ACCEPTED, note=note)

    def _message(self, found: dict[str, Any], prefix: str, operator: str) -> ApplicationMessage:
        """Return the message in an object. Raises BadRecord."""
        limits = self._limits()
        fields = Fields(found, prefix)
        try:
            for name, value in found.items():
                if value is None:
                    raise fields.bad(name, "is null; leave it out")
            topic = fields.topic()
            if topic.startswith(SHARED_PREFIX):
                raise fields.bad("topic", "those of shared subscriptions are no topics")
            if level_count(topic) > limits.max_topic_levels:
                raise fields.bad("topic", f"has more than {limits.max_topic_levels} levels (mqtt.max_topic_levels)")
            unprintable = None if limits.control_characters else control_character(topic)
            if unprintable is not None:
                raise fields.bad("topic", f"contains the control character {unprintable} (mqtt.control_characters)")
            payload = _payload(fields)
            if len(payload) > limits.max_bytes:
                raise fields.bad("payload", f"has more than {limits.max_bytes} bytes (mqtt.max_packet_size)")
            qos, retain = fields.qos(), fields.flag("retain")
            if qos > limits.max_qos:
                raise fields.bad("qos", f"is more than {limits.max_qos} (mqtt.max_qos_allowed)")
            if retain and not limits.retain_available:
                raise fields.bad("retain", "is not available (mqtt.retain_available)")
            if retain and not limits.can_be_stored:
                raise database_away()
            table = Fields(_as_pairs(found.get("properties")), f"{prefix}properties.")
            fields.table("properties")
            expiry = table.whole("message_expiry_interval", 0, _MOST_SECONDS)
            properties = checked_properties(table)
            fields.finish()
        except BadRecord as error:
            raise BadRecord(str(error), f"{prefix}{error.field}") from None
        expires_at = None if expiry is None else self._now() + 1000 * expiry
        return ApplicationMessage(
            topic, payload, qos, retain, properties=properties, expires_at=expires_at, operator=operator
        )


def _payload(fields: Fields) -> bytes:
    encoding = fields.text("payload_encoding") or "plain"
    if encoding == "base64":
        return fields.base64("payload", required=True)
    if encoding == "plain":
        return str(fields.characters("payload", required=True)).encode()
    raise fields.bad("payload_encoding", "is plain or base64")


def _as_pairs(properties: object) -> Mapping[str, Any]:
    """Return the properties with their User Properties as pairs: EMQX has them as an object."""
    if not isinstance(properties, dict):
        return {}
    user_properties = properties.get("user_properties")
    if not isinstance(user_properties, dict):
        return properties
    return {**properties, "user_properties": [list(pair) for pair in user_properties.items()]}


def _result(matched: bool) -> dict[str, Any]:
    """Return the result of one message. Its number is not part of the message: it only names it in the audit log."""
    number = {"id": secrets.token_hex(16).upper()}
    if matched:
        return number
    return {**number, "reason_code": int(ReasonCode.NO_MATCHING_SUBSCRIBERS), "message": "no_matching_subscribers"}
