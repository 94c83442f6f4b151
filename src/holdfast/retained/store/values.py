"""The values that a store of retained messages takes and returns. Plain: no Twisted, no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from holdfast.extensions.replay_info import Facts
from holdfast.messages import RetainedMessage


@frozen
class QueuedRows:
    """Rows that the subscriber gets from its queue: changes by this node with a revision above ``above``.

    They are at most ``until``, and their stored QoS is at least ``least_qos``.
    """

    above: int
    until: int
    least_qos: int


@frozen
class Selection:
    """The retained messages that a replay asks for, and the form of their packets.

    ``protocol_version`` (3, 4 or 5) chooses the form. Five kinds of rows are left out: changes by ``node`` with a
    revision above ``not_after``, because the subscriber gets them live; ``queued`` rows; messages that expired by
    ``now`` (milliseconds); messages of the Client ``except_client`` (No Local); packets longer than ``max_packet_size``
    bytes.

    ``within`` has Topic Filters whose ranges bound the read (:mod:`holdfast.retained.wildcards.ranges`), None for no
    such bound. The read ends behind the topic ``until`` (None: at the end). ``publishers`` asks who published each
    message. ``facts`` are told in User Properties of each packet (:mod:`holdfast.retained.store.facts`).
    """

    topic_filter: str
    protocol_version: int
    not_after: int
    node: int
    now: int
    except_client: str | None = None
    max_packet_size: int | None = None
    queued: QueuedRows | None = None
    within: tuple[str, ...] | None = None
    until: str | None = None
    publishers: bool = False
    facts: Facts = ()


#: the User Name and the Client Identifier of the publisher of a retained message; None where there is none
Publisher = tuple[str | None, str | None]


@frozen
class Slice:
    """Consecutive retained messages in topic order, as packets.

    ``packets`` is the concatenation of ``count`` PUBLISH packets with QoS 0 and RETAIN 1; ``last`` is the last topic.
    ``qos`` holds each message's stored QoS (one byte of value 0, 1 or 2 per packet) and ``expires_at`` each message's
    expiry in milliseconds since the epoch (0 for never). Both are empty if the reader did not ask for them *and* no
    packet has an expiry that must be rewritten. ``soonest_expiry`` is the time (milliseconds since the epoch, 0 for
    never) at which the first message of the slice expires: from then on the slice must be read again. ``left_out``
    counts messages that are longer than the Selection's ``max_packet_size``, since the slice before. ``publishers`` is
    empty if the reader did not ask for them; it has None for an empty message, which tells of a clear.

    Messages of the past may be in another order. Then ``cursors`` has the cursor of the replay behind each message: a
    text that rises from one message to the next, in place of its topic. ``last`` is the last one then.
    """

    last: str
    count: int
    packets: bytes
    qos: bytes = b""
    expires_at: tuple[int, ...] = ()
    soonest_expiry: int = 0
    left_out: int = 0
    publishers: Sequence[Publisher | None] = ()
    cursors: Sequence[str] = ()


@frozen
class Batch:
    """One bounded read of the store: slices in topic order, the topic to continue after, and whether it is the last.

    ``after`` can be behind the last slice's topic: a read that finds nothing still makes progress. ``left_out`` counts
    messages behind the last slice that are too long (see :class:`Slice`).
    """

    slices: Sequence[Slice]
    after: str
    done: bool
    left_out: int = 0


@frozen
class Survey:
    """The publishers of the messages of some topics: topic, User Name and Client Identifier, in topic order.

    ``end`` is the topic to continue after, None at the end.
    """

    published: Sequence[tuple[str, str | None, str | None]]
    end: str | None


@frozen
class EarlierSurvey:
    """What an earlier process has found out about publishers: none of the messages that it judged is withheld.

    ``fingerprint`` stands for all that its verdicts depend on. It judged all messages up to the revision
    ``newer_than``; None: all messages of the store.
    """

    fingerprint: str
    newer_than: int | None


@frozen
class ListedMessage:
    """A retained message in a listing. The payload is empty unless asked for; ``size`` is its length in bytes."""

    message: RetainedMessage
    size: int


@frozen
class Listing:
    """A part of a list, in topic order, with the topic to continue after, and whether it is the last part.

    ``after`` can be behind the last entry's topic: a read that finds nothing still makes progress. A list of a past
    time lacks the topics of the Topic Filters ``left_out``: the history does not know them then.
    """

    entries: Sequence[ListedMessage]
    after: str
    done: bool
    left_out: Sequence[str] = ()


@frozen
class RetainedStatistics:
    """The number of committed retained messages, and their bytes (:func:`holdfast.sizes.stored_size`)."""

    count: int
    bytes: int


#: A position among expired messages: the time of expiry and the topic of the last one counted.
ExpiredPosition = tuple[int, str]


@frozen
class Census:
    """The totals of all nodes at one moment, and a part of the expired messages that they still include.

    ``after`` is the position of the last expired message counted, None if no more are left.
    """

    total: RetainedStatistics
    expired: RetainedStatistics
    after: ExpiredPosition | None


@frozen
class Usage:
    """A number of messages, their bytes (:func:`holdfast.sizes.stored_size`), and the publisher of a single message."""

    messages: int
    bytes: int
    client_id: str | None = None
    username: str | None = None


NO_USAGE = Usage(0, 0)


@frozen
class UsageSnapshot:
    """The usage at one moment. ``topics`` has only topics with a retained message."""

    total: Usage
    topics: Mapping[str, Usage]
    filters: Mapping[str, Usage]
    clients: Mapping[str, Usage]
    payers: Mapping[str, Usage]
