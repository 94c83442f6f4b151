"""The requests of clients in the User Properties of SUBSCRIBE, and the names that only participants may use."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import (
    CONFLATE,
    IF_ABSENT,
    IF_PAYLOAD_SHA256,
    IF_REVISION,
    PARTICIPATION,
    PREFIX,
    REPLAY_END,
    REPLAY_INFO,
    REPLAY_SINCE,
    RETAIN_WHILE,
    TOLD_BY_BROKER,
)
from holdfast.extensions.participation import QUESTION
from holdfast.extensions.replay_info import Facts, facts_in
from holdfast.topics import REPLAY_END as TOPIC_FOR_ALL
from holdfast.topics import InvalidTopicName, check_topic_name

#: The longest Topic Name for markers, in bytes: it is stored with each Topic Filter of a SUBSCRIBE.
LONGEST_TOPIC = 256

#: The longest interval of conflation, in milliseconds.
LONGEST_INTERVAL = 3_600_000

UserProperties = Sequence[tuple[str, str]]


@frozen
class SubscribeRequests:
    """What a SUBSCRIBE asks for. ``replay_end`` is the Topic Name for markers, None for no markers.

    ``conflate`` is the interval of conflation in milliseconds, 0 for none. ``replay_info`` is what to tell of each
    replayed message. ``replay_since`` is a token or a time, None for a replay of everything.
    """

    replay_end: str | None = None
    conflate: int = 0
    replay_info: Facts = ()
    replay_since: str | None = None


_FOR_SUBSCRIBE = frozenset({REPLAY_END, REPLAY_SINCE, REPLAY_INFO, CONFLATE})
#: without facts: a client sees from each message that it is told none
NEEDING_PART_IN_SUBSCRIBE = _FOR_SUBSCRIBE - {REPLAY_INFO}
FOR_PUBLISH = frozenset({IF_REVISION, IF_ABSENT, IF_PAYLOAD_SHA256, RETAIN_WHILE})

NO_REQUESTS = SubscribeRequests()


def subscribe_requests(properties: UserProperties, max_levels: int) -> SubscribeRequests:
    """Return the requests of a SUBSCRIBE. A Topic Name may have ``max_levels`` levels.

    Raises :class:`BadRequest`. A name that is not offered is refused too: CONNACK has told the client what is.
    """
    found: dict[str, str] = {}
    for name, value in properties:
        if not name.startswith(PREFIX):
            continue
        if name in found:
            raise BadRequest(f"User Property {name} is given more than once")
        if name not in _FOR_SUBSCRIBE:
            raise _not_offered(name, "SUBSCRIBE", _FOR_SUBSCRIBE)
        found[name] = value
    if not found:
        return NO_REQUESTS
    facts = found.get(REPLAY_INFO)
    return SubscribeRequests(
        _marker_topic(found.get(REPLAY_END), max_levels),
        _interval(found.get(CONFLATE)),
        () if facts is None else facts_in(facts),
        found.get(REPLAY_SINCE),
    )


def check_publish_names(properties: UserProperties) -> None:
    """Raise :class:`BadRequest` for a request in a PUBLISH that is not offered.

    Without this, a message whose condition has a misspelt name would be stored without any condition.
    """
    for name, _ in properties:
        if name.startswith(PREFIX) and name not in FOR_PUBLISH:
            raise _not_offered(name, "PUBLISH", FOR_PUBLISH)


def check_takes_part(properties: UserProperties, requests: frozenset[str]) -> None:
    """Raise :class:`BadRequest` if one of the ``requests`` is among the properties of a client that does not take part.

    Without this, the client would take the success of its packet for that of its request. All other names are ignored.
    """
    for name, _ in properties:
        if name in requests:
            raise BadRequest(f"User Property {name} needs User Property {PARTICIPATION} = {QUESTION} in CONNECT")


def _not_offered(name: str, packet: str, offered: frozenset[str]) -> BadRequest:
    return BadRequest(f"User Property {name[:64]} is not offered for {packet}, only {', '.join(sorted(offered))}")


def _interval(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 1 <= int(text) <= LONGEST_INTERVAL):
        raise BadRequest(f"User Property {CONFLATE} is a number of milliseconds from 1 to {LONGEST_INTERVAL}")
    return int(text)


def _marker_topic(topic: str | None, max_levels: int) -> str | None:
    if topic is None:
        return None
    try:
        check_topic_name(topic, max_levels)
    except InvalidTopicName as wrong:
        raise BadRequest(f"User Property {REPLAY_END} is a Topic Name: {wrong}") from None
    if len(topic.encode()) > LONGEST_TOPIC:
        raise BadRequest(f"User Property {REPLAY_END} has at most {LONGEST_TOPIC} bytes")
    if topic.startswith("$") and topic != TOPIC_FOR_ALL:
        raise BadRequest(f"User Property {REPLAY_END} is {TOPIC_FOR_ALL}, or a topic that does not begin with $")
    return topic


def broker_property(properties: UserProperties) -> str | None:
    """Return the first name that only the broker tells, None for none."""
    return next((name for name, _ in properties if name in TOLD_BY_BROKER), None)
