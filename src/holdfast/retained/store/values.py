"""The values that a store of retained messages takes and returns. Plain: no Twisted, no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import frozen

from holdfast.core.extensions import Facts
from holdfast.core.messages import RetainedMessage


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

    ``within`` has Topic Filters whose ranges bound the read (:mod:`holdfast.retained.store.wildcards`), None for no
    such bound. The read ends behind the topic ``until`` (None: at the end). ``publishers`` asks who published each
    message. ``facts`` are told in User Properties of each packet (:mod:`holdfast.retained.store.rows`).
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
    """The number of committed retained messages, and their bytes (:func:`holdfast.core.messages.stored_size`)."""

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
    """A number of messages, their bytes (see :func:`.stored_size`), and the publisher of a single message."""

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


# The values that scans take and return. Plain: no Twisted, no database.


_EVER = 2**63 - 1


@frozen
class Search:
    """The messages that an operator asks for. A condition that is None selects all messages.

    The ``topic_filter`` may be :data:`.EVERY_TOPIC`. Messages that expired by ``now`` are left out; with
    ``expired``, all others are. ``stored_from`` is the first and ``stored_before`` the first excluded time of the
    store; times are in milliseconds since the epoch. ``least_size`` and ``most_size`` bound the bytes of the payload.
    ``contains`` is a part of the topic, upper and lower case told apart. Changes by ``node`` with a revision above
    ``not_after`` are left out.
    """

    topic_filter: str
    now: int
    expired: bool = False
    client_id: str | None = None
    username: str | None = None
    stored_from: int | None = None
    stored_before: int | None = None
    least_size: int | None = None
    most_size: int | None = None
    contains: str | None = None
    not_after: int = _EVER
    node: int = 0

    @property
    def plain(self) -> bool:
        """Whether only the Topic Filter selects, so that every read of the store can answer."""
        return self == Search(self.topic_filter, self.now, not_after=self.not_after, node=self.node)

    def selects(self, topic: str, client_id: str | None, username: str | None, stored_at: int, size: int) -> bool:
        """Tell whether a message meets the conditions of publisher, time, size and text."""
        return (
            (self.client_id is None or client_id == self.client_id)
            and (self.username is None or username == self.username)
            and (self.stored_from is None or stored_at >= self.stored_from)
            and (self.stored_before is None or stored_at < self.stored_before)
            and (self.least_size is None or size >= self.least_size)
            and (self.most_size is None or size <= self.most_size)
            and (self.contains is None or self.contains in topic)
        )


@frozen
class Tally:
    """A number of messages, their bytes (see :func:`.stored_size`), and the newest time of their store.

    ``newest`` is in milliseconds since the epoch, None without messages.
    """

    count: int = 0
    bytes: int = 0
    newest: int | None = None

    def plus(self, other: Tally) -> Tally:
        """Return the tally of both."""
        times = [one for one in (self.newest, other.newest) if one is not None]
        return Tally(self.count + other.count, self.bytes + other.bytes, max(times, default=None))


NO_TALLY = Tally()


@frozen
class Passed:
    """How far one scan went: the rows that it looked at, the topic to go on after, and whether it reached the end."""

    scanned: int
    after: str
    done: bool


@frozen
class TallyPart:
    """The tally of some rows."""

    tally: Tally
    passed: Passed


@frozen
class FoundPart:
    """Messages of some rows, in topic order."""

    entries: Sequence[ListedMessage]
    passed: Passed


class Order(Enum):
    """What messages are sorted by; the values are columns."""

    TIME = "stored_at"
    SIZE = "size"


#: A message among sorted ones: the value that it is sorted by, and its topic.
Place = tuple[int, str]


@frozen
class Sorting:
    """An order: by which value, and whether the highest value comes first. Equal values are in topic order.

    With ``beyond``, only messages behind this place are wanted.
    """

    by: Order
    descending: bool
    beyond: Place | None = None

    def rank(self, place: Place) -> tuple[int, str]:
        """Return a key: places in this order have ascending keys."""
        value, topic = place
        return (-value if self.descending else value), topic


@frozen
class RankedPart:
    """The first places among the messages of some rows."""

    places: Sequence[Place]
    passed: Passed


@frozen
class Stop:
    """A row at which a walk through a level stopped: its topic, whether it has a message, its bytes and its time."""

    topic: str
    live: bool
    bytes: int
    stored_at: int


@frozen
class BelowTally:
    """The tally of the topics below a topic; not ``exact`` if it has more rows than were looked at."""

    tally: Tally
    scanned: int
    exact: bool
