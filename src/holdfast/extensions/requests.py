"""The requests of a participant: what the User Properties of its SUBSCRIBE ask for."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import OFFERED, PREFIX, REPLAY_END, TOLD_BY_BROKER
from holdfast.topics import REPLAY_END as TOPIC_FOR_ALL
from holdfast.topics import InvalidTopicName, check_topic_name

#: The longest Topic Name for markers, in bytes: it is stored with each Topic Filter of a SUBSCRIBE.
LONGEST_TOPIC = 256

UserProperties = Sequence[tuple[str, str]]


@frozen
class SubscribeRequests:
    """What a SUBSCRIBE asks for. ``replay_end`` is the Topic Name for markers, None for no markers."""

    replay_end: str | None = None


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
        if name != REPLAY_END:
            offered = ", ".join(PREFIX + feature for feature in OFFERED)
            raise BadRequest(f"User Property {name[:64]} is not offered for SUBSCRIBE, only {offered}")
        found[name] = value
    topic = found.get(REPLAY_END)
    if topic is None:
        return NO_REQUESTS
    try:
        check_topic_name(topic, max_levels)
    except InvalidTopicName as wrong:
        raise BadRequest(f"User Property {REPLAY_END} is a Topic Name: {wrong}") from None
    if len(topic.encode()) > LONGEST_TOPIC:
        raise BadRequest(f"User Property {REPLAY_END} has at most {LONGEST_TOPIC} bytes")
    if topic.startswith("$") and topic != TOPIC_FOR_ALL:
        raise BadRequest(f"User Property {REPLAY_END} is {TOPIC_FOR_ALL}, or a topic that does not begin with $")
    return SubscribeRequests(topic)


def broker_property(properties: UserProperties) -> str | None:
    """Return the first name that only the broker tells, None for none."""
    return next((name for name, _ in properties if name in TOLD_BY_BROKER), None)
