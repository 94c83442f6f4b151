"""The values that a store of retained messages takes and returns. Plain: no Twisted, no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from holdfast.messages import RetainedMessage


@frozen
class Selection:
    """Which retained messages a replay asks for, and in which form.

    ``protocol_version`` (3, 4 or 5) picks the packets' form. Rows written by ``node`` with a revision above
    ``not_after`` are left out (their changes were delivered live), so are rows expired at ``now`` (milliseconds),
    rows published by the Client ``except_client`` (No Local) and packets longer than ``max_packet_size`` bytes.
    """

    topic_filter: str
    protocol_version: int
    not_after: int
    node: int
    now: int
    except_client: str | None = None
    max_packet_size: int | None = None


@frozen
class Slice:
    """Consecutive retained messages in topic order, ready for the wire.

    ``packets`` is the concatenation of ``count`` PUBLISH packets with QoS 0 and RETAIN 1; ``last`` is the last topic.
    ``qos`` holds each message's stored QoS (one byte of value 0, 1 or 2 per packet) and ``expires_at`` each message's
    expiry in milliseconds since the epoch (0 for never). Both are empty when not asked for *and* no packet of the
    slice carries an expiry that must be rewritten. ``soonest_expiry`` is the first moment (milliseconds since the
    epoch, 0 for never) at which a message of the slice expires: from then on the slice is not to be delivered.
    """

    last: str
    count: int
    packets: bytes
    qos: bytes = b""
    expires_at: tuple[int, ...] = ()
    soonest_expiry: int = 0


@frozen
class Batch:
    """One read of the store: slices in topic order, where to go on, and whether nothing is left.

    ``after`` may lie beyond the last slice's topic: a bounded scan that found nothing still makes progress.
    """

    slices: Sequence[Slice]
    after: str
    done: bool


@frozen
class ListedMessage:
    """A retained message as it is listed: its payload only if asked for, else empty. ``size`` is that in bytes."""

    message: RetainedMessage
    size: int


@frozen
class Listing:
    """Some of the messages asked for, in topic order, where to go on, and whether nothing is left.

    ``after`` may lie beyond the last one's topic: a bounded scan that found nothing still makes progress.
    """

    entries: Sequence[ListedMessage]
    after: str
    done: bool


@frozen
class TopicState:
    """How a topic stands: when it changed last (milliseconds since the epoch), and what is retained, if anything.

    The payload is not among it.
    """

    changed_at: int
    listed: ListedMessage | None


@frozen
class RetainedStatistics:
    """How much is retained: committed messages (no tombstones) and the bytes of their payloads."""

    count: int
    payload_bytes: int


@frozen
class Usage:
    """How much is retained: messages and the bytes of their payloads; of a single one, also by which Client."""

    messages: int
    bytes: int
    client_id: str | None = None


NO_USAGE = Usage(0, 0)


@frozen
class UsageSnapshot:
    """What a look at the store has found: topics in which nothing is retained are not among ``topics``."""

    total: Usage
    topics: Mapping[str, Usage]
    filters: Mapping[str, Usage]
    clients: Mapping[str, Usage]
