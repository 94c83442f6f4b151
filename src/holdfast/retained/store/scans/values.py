"""The values that scans take and return. Plain: no Twisted, no database."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from holdfast.retained.store.values import ListedMessage

_EVER = 2**63 - 1


@frozen
class Search:
    """The messages that an operator asks for. A condition that is None selects all messages.

    The ``topic_filter`` may be :data:`holdfast.topics.EVERY_TOPIC`. Messages that expired by ``now`` are left out; with
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
    """A number of messages, their bytes (:func:`holdfast.sizes.stored_size`), and the newest time of their store.

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
