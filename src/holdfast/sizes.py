"""What a message holds, in bytes: the one measure of all accounts and limits on bytes.

A message holds its topic, its properties and its payload, and a constant for everything else. The constant depends on
the account:

- in memory (:func:`held_size`): queues of Sessions, writes that wait for their commit;
- in the database (:func:`stored_size`): retained messages, their quotas, the history.

``retainer.max_payload_size`` alone is about payloads.
"""

from __future__ import annotations

from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import encode_properties

#: What a message in memory costs beside its bytes: Python's objects for it, its place in a queue, and its row.
HELD_ENTRY = 600
#: What its Packet Identifier alone costs at most, where neither the message nor its packet is kept.
HELD_IDENTIFIER = 100
#: What each of its User Properties costs in memory beside its bytes: two strings and their pair.
HELD_USER_PROPERTY = 160
#: What a row of the database costs beside its bytes: times, revision, publisher, packet prefixes, indexes.
STORED_ENTRY = 200


def held_size(topic_bytes: int, properties: Properties, payload_bytes: int) -> int:
    """Return how many bytes a message occupies in memory, given the lengths of its topic and payload in bytes."""
    size = HELD_ENTRY + topic_bytes + payload_bytes
    if properties is not NO_PROPERTIES:  # most messages have none: one comparison instead of an encoding
        size += len(encode_properties(properties)) + HELD_USER_PROPERTY * len(properties.user_properties)
    return size


def stored_size(topic: str, properties: Properties, payload_bytes: int) -> int:
    """Return how many bytes a message occupies in the database."""
    block = 1 if properties is NO_PROPERTIES else len(encode_properties(properties))
    return STORED_ENTRY + len(topic.encode()) + block + payload_bytes
