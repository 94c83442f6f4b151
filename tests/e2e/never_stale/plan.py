"""What an example does, as a value that can be printed: who publishes, clears, subscribes, stalls, leaves, rejoins."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen

#: publishers of an example, on each of its nodes in turn, and subscribers
PUBLISHERS = 3
SUBSCRIBERS = 4

#: topics are ``PREFIX/BRANCH/NUMBER``, in so many branches
BRANCHES = 4

#: Topic Filters below the prefix: overlapping, with wildcards and without
FILTERS = ("#", "+/+", "0/#", "1/+", "+/003", "2/006", "1/005")


class Kind(Enum):
    """What a published message does to what is retained."""

    SET = "set"
    CLEAR = "clear"
    EXPIRING = "expiring"  #: retained for a second
    PASSING = "passing"  #: RETAIN 0

    def __repr__(self) -> str:
        return f"Kind.{self.name}"


@frozen
class Burst:
    """A publisher publishes to so many of its topics, one after the other, from the ``first`` on, several rounds."""

    publisher: int
    first: int
    count: int
    rounds: int
    kind: Kind
    qos: int


@frozen
class HandOver:
    """Topics get another publisher, perhaps on another node, once all that was published to them is stored."""

    publisher: int
    first: int
    count: int


@frozen
class Settle:
    """A publisher waits for all its acknowledgements."""

    publisher: int


@frozen
class Clean:
    """A tool clears what matches; ``racing`` against publishers, or once all that was published is stored."""

    filter: str
    node: int
    racing: bool


@frozen
class Join:
    """A subscriber connects: with a new Session or, if there is one, its old one; over its old connection or not."""

    subscriber: int
    clean: bool


@frozen
class Leave:
    """A subscriber goes, with or without DISCONNECT."""

    subscriber: int
    goodbye: bool


@frozen
class Subscribe:
    """SUBSCRIBE, whether or not the subscription exists or its replay is under way."""

    subscriber: int
    filter: str
    qos: int
    retain_handling: int


@frozen
class Unsubscribe:
    """UNSUBSCRIBE."""

    subscriber: int
    filter: str


@frozen
class Stall:
    """A subscriber reads no more."""

    subscriber: int


@frozen
class Hold:
    """A subscriber acknowledges no more."""

    subscriber: int


@frozen
class GoOn:
    """A subscriber reads, and sends the acknowledgements it has held back."""

    subscriber: int


@frozen
class RoundTrips:
    """A subscriber sends PINGREQ and waits for PINGRESP, several times: time for the broker to go on."""

    subscriber: int
    count: int


Step = (
    Burst | HandOver | Settle | Clean | Join | Leave | Subscribe | Unsubscribe | Stall | Hold | GoOn | RoundTrips
)  # fmt: skip


@frozen
class Habit:
    """What a subscriber is like; what MQTT 3.1.1 cannot say is left out. ``receive_buffer`` is in bytes."""

    version: int
    lasting: bool
    receive_maximum: int
    receive_buffer: int
    retain_as_published: bool
    identifiers: bool


@frozen
class Plan:
    """An example. ``padding`` is the length of the payloads of what is retained from the start, in bytes."""

    topics: int
    padding: int
    versions: tuple[int, ...]
    habits: tuple[Habit, ...]
    steps: tuple[Step, ...]


_QOS = st.integers(0, 2)
_PUBLISHER = st.integers(0, PUBLISHERS - 1)
_SUBSCRIBER = st.integers(0, SUBSCRIBERS - 1)
_FILTER = st.sampled_from(FILTERS)
_PLACE = st.integers(0, 150)
_SETS = st.builds(Burst, _PUBLISHER, _PLACE, st.integers(1, 60), st.integers(1, 4), st.just(Kind.SET), _QOS)
_OTHERS = st.builds(
    Burst, _PUBLISHER, _PLACE, st.integers(1, 30), st.just(1), st.sampled_from([Kind.CLEAR, Kind.PASSING]), _QOS
)
_SUBSCRIBES = st.builds(Subscribe, _SUBSCRIBER, _FILTER, _QOS, st.sampled_from([0, 0, 1, 2]))
_JOINS = st.builds(Join, _SUBSCRIBER, st.booleans())
_GOES_ON = st.builds(GoOn, _SUBSCRIBER)
_ROUND_TRIPS = st.builds(RoundTrips, _SUBSCRIBER, st.integers(1, 5))
_STEPS: tuple[st.SearchStrategy[Step], ...] = (
    _SETS,
    _SETS,
    _OTHERS,
    st.builds(HandOver, _PUBLISHER, _PLACE, st.integers(1, 40)),
    st.builds(Settle, _PUBLISHER),
    st.builds(Clean, st.sampled_from([*FILTERS[2:], FILTERS[0]]), st.integers(0, 1), st.booleans()),
    _JOINS,
    _JOINS,
    st.builds(Leave, _SUBSCRIBER, st.booleans()),
    _SUBSCRIBES,
    _SUBSCRIBES,
    _SUBSCRIBES,
    st.builds(Unsubscribe, _SUBSCRIBER, _FILTER),
    st.builds(Stall, _SUBSCRIBER),
    st.builds(Hold, _SUBSCRIBER),
    _GOES_ON,
    _GOES_ON,
    _ROUND_TRIPS,
    _ROUND_TRIPS,
)
_EXPIRING = st.builds(Burst, _PUBLISHER, _PLACE, st.integers(1, 30), st.just(1), st.just(Kind.EXPIRING), _QOS)

_HABITS = st.builds(
    Habit,
    st.sampled_from([4, 5]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 10, 65_535]),
    st.sampled_from([4096, 1 << 18]),
    st.sampled_from([False, False, True]),
    st.booleans(),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of 20 to 60 steps; expiry, for which the end has to wait, in one of eight."""
    steps = st.one_of(*_STEPS, _EXPIRING) if draw(st.integers(0, 7)) == 7 else st.one_of(*_STEPS)
    return Plan(
        draw(st.integers(20, 160)),
        draw(st.sampled_from([10, 10, 300, 40_000])),
        draw(st.tuples(*[st.sampled_from([4, 5])] * PUBLISHERS)),
        draw(st.tuples(*[_HABITS] * SUBSCRIBERS)),
        tuple(draw(st.lists(steps, min_size=20, max_size=60))),
    )
