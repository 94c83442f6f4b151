"""The steps of an example, as a printable value: publish, clear, subscribe, stall, leave, rejoin."""

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

#: the number of branches; topics are ``PREFIX/BRANCH/NUMBER``
BRANCHES = 4

#: The branch with a ``write_interval``: its QoS 0 messages may wait in the memory of their node.
DELAYED_BRANCH = 2

#: Topic Filters below the prefix: overlapping, with wildcards and without
FILTERS = ("#", "+/+", "0/#", "1/+", "+/003", "2/006", "1/005")


class Kind(Enum):
    """The effect of a published message on the retained messages."""

    SET = "set"
    CLEAR = "clear"
    EXPIRING = "expiring"  #: retained for a second
    PASSING = "passing"  #: RETAIN 0

    def __repr__(self) -> str:
        return f"Kind.{self.name}"


@frozen
class Burst:
    """A publisher publishes to ``count`` of its topics in order, from the ``first`` on, in several rounds.

    ``condition`` tells whether conditions (compare-and-set) hold; None for no conditions.
    """

    publisher: int
    first: int
    count: int
    rounds: int
    kind: Kind
    qos: int
    condition: bool | None = None


@frozen
class HandOver:
    """Topics get another publisher, perhaps on another node, once all their messages are stored."""

    publisher: int
    first: int
    count: int


@frozen
class Settle:
    """A publisher waits for all its acknowledgements."""

    publisher: int


@frozen
class Clean:
    """A tool clears the matching topics: ``racing`` against publishers, or once all messages are stored."""

    filter: str
    node: int
    racing: bool


@frozen
class Put:
    """A tool takes topics over once all their messages are stored, and retains new values during later steps."""

    node: int
    first: int
    count: int
    rounds: int
    qos: int


@frozen
class Ask:
    """A client of a node asks for the retained messages with ``$retained/get``."""

    node: int
    filter: str


@frozen
class LookBack:
    """A client of a node subscribes to the retained messages of this moment, below ``$history/at``."""

    node: int
    filter: str


@frozen
class Join:
    """A subscriber connects, to a new Session or to its old one. It may take over its own connection."""

    subscriber: int
    clean: bool


@frozen
class Leave:
    """A subscriber disconnects, with or without DISCONNECT."""

    subscriber: int
    goodbye: bool


class Manner(Enum):
    """The behaviour of a subscriber after SUBSCRIBE."""

    AS_BEFORE = "as before"
    HOLDING = "holding"  #: it stops acknowledging
    STALLED = "stalled"  #: it stops reading

    def __repr__(self) -> str:
        return f"Manner.{self.name}"


@frozen
class Subscribe:
    """SUBSCRIBE, whether or not the subscription exists or its replay is under way."""

    subscriber: int
    filter: str
    qos: int
    retain_handling: int
    manner: Manner = Manner.AS_BEFORE


@frozen
class Unsubscribe:
    """UNSUBSCRIBE."""

    subscriber: int
    filter: str


@frozen
class GoOn:
    """A subscriber reads, and sends its delayed acknowledgements."""

    subscriber: int


@frozen
class RoundTrips:
    """A subscriber sends PINGREQ and waits for PINGRESP, several times. Meanwhile the broker continues."""

    subscriber: int
    count: int


Step = (
    Burst
    | HandOver
    | Settle
    | Clean
    | Put
    | Ask
    | LookBack
    | Join
    | Leave
    | Subscribe
    | Unsubscribe
    | GoOn
    | RoundTrips
)


@frozen
class Habit:
    """The options of a subscriber. MQTT 3.1.1 ignores those that it lacks. ``receive_buffer`` is in bytes.

    ``conflate`` is the interval of conflation in milliseconds, 0 for none; ``markers`` the QoS of markers, 0 for none.
    With ``told``, replayed messages tell their revisions.
    """

    version: int
    lasting: bool
    receive_maximum: int
    receive_buffer: int
    retain_as_published: bool
    identifiers: bool
    conflate: int = 0
    markers: int = 0
    told: bool = False

    @property
    def takes_part(self) -> bool:
        """Whether CONNECT asks what Holdfast offers beyond MQTT."""
        return self.version == 5 and bool(self.conflate or self.told)


@frozen
class Plan:
    """An example. ``padding`` is the payload length of the first retained messages, in bytes."""

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


def _changes(kinds: st.SearchStrategy[Kind], tools: bool) -> st.SearchStrategy[Step]:
    """Generate steps that change retained messages, perhaps with tools."""
    by_tools: tuple[st.SearchStrategy[Step], ...] = (
        st.builds(Clean, _FILTER, st.integers(0, 1), st.booleans()),
        st.builds(Put, st.integers(0, 1), _PLACE, st.integers(1, 40), st.integers(1, 3), _QOS),
    )
    return st.one_of(
        st.builds(Burst, _PUBLISHER, _PLACE, st.integers(1, 60), st.integers(1, 3), kinds, _QOS),
        st.builds(
            Burst, _PUBLISHER, _PLACE, st.integers(1, 20), st.integers(1, 2), kinds, st.integers(1, 2), st.booleans()
        ),
        st.builds(Burst, _PUBLISHER, st.just(0), st.just(60), st.just(1), kinds, _QOS),
        *(by_tools if tools else ()),
        st.builds(Ask, st.integers(0, 1), _FILTER),
        st.builds(LookBack, st.integers(0, 1), _FILTER),
        st.builds(HandOver, _PUBLISHER, _PLACE, st.integers(1, 60)),
        st.builds(Settle, _PUBLISHER),
    )


def _moves(subscriber: int) -> st.SearchStrategy[Step]:
    """Generate the steps of a subscriber."""
    own = st.just(subscriber)
    return st.one_of(
        st.builds(Join, own, st.just(False)),
        st.builds(Join, own, st.booleans()),
        st.builds(Leave, own, st.booleans()),
        st.builds(Subscribe, own, _FILTER, _QOS, st.integers(0, 2), st.sampled_from(list(Manner))),
        st.builds(Unsubscribe, own, _FILTER),
        st.builds(GoOn, own),
        st.builds(RoundTrips, own, st.integers(1, 5)),
    )


def _interrupted(subscriber: int, changes: st.SearchStrategy[Step]) -> st.SearchStrategy[tuple[Step, ...]]:
    """Generate a delayed replay, and the steps meanwhile."""
    own = st.just(subscriber)
    held = st.sampled_from([Manner.HOLDING, Manner.STALLED])
    first = st.tuples(
        st.builds(Join, own, st.booleans()),
        st.builds(Subscribe, own, st.sampled_from(FILTERS[:4]), _QOS, st.just(0), held),
        st.just(RoundTrips(subscriber, 3)),
    )
    meanwhile = st.lists(st.one_of(changes, changes, _moves(subscriber)), min_size=1, max_size=6)
    return st.tuples(first, meanwhile).map(lambda parts: (*parts[0], *parts[1], GoOn(subscriber)))


def _returning(subscriber: int, changes: st.SearchStrategy[Step]) -> st.SearchStrategy[tuple[Step, ...]]:
    """Generate a replay that is interrupted, changes while the subscriber is away, and its return."""
    own = st.just(subscriber)
    first = st.tuples(
        st.builds(Join, own, st.just(False)),
        st.builds(Subscribe, own, st.sampled_from(FILTERS[:4]), st.integers(1, 2), st.just(0),
                  st.sampled_from([Manner.AS_BEFORE, Manner.HOLDING])),
    )  # fmt: skip
    answered = st.sampled_from([(), (RoundTrips(subscriber, 1),)])
    leaves = st.builds(Leave, own, st.booleans())
    bursts = st.builds(
        Burst, _PUBLISHER, _PLACE, st.integers(1, 60), st.integers(1, 2), st.just(Kind.SET), st.integers(1, 2)
    )
    away = st.lists(st.one_of(bursts, bursts, changes), min_size=1, max_size=3)
    back = st.tuples(st.builds(Join, own, st.just(False)))
    absence = st.tuples(leaves, away, back).map(lambda parts: (parts[0], *parts[1], *parts[2]))
    return st.tuples(first, answered, st.lists(absence, min_size=1, max_size=2)).map(
        lambda parts: (*parts[0], *parts[1], *(step for one in parts[2] for step in one))
    )


def _episodes(*kinds: Kind, tools: bool = True) -> st.SearchStrategy[list[tuple[Step, ...]]]:
    changes = _changes(st.sampled_from(kinds), tools)
    numbers = range(SUBSCRIBERS)
    episode = st.one_of(
        *(_interrupted(number, changes) for number in numbers),
        *(_returning(number, changes) for number in numbers),
        *(st.tuples(_moves(number)) for number in numbers),
        st.tuples(changes),
    )
    return st.lists(episode, min_size=10, max_size=25)


_KINDS = (Kind.SET, Kind.SET, Kind.SET, Kind.CLEAR, Kind.PASSING)
_LASTING = _episodes(*_KINDS)
_LOUD = _episodes(*_KINDS, tools=False)
_EXPIRING = _episodes(*_KINDS, Kind.EXPIRING)

_HABITS = st.builds(
    Habit,
    st.sampled_from([4, 5]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 10, 65_535]),
    st.sampled_from([4096, 1 << 18]),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.sampled_from([0, 0, 5, 50]),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of about ten interrupted replays. One plan in eight has expiring messages, and must wait for them.

    Three in eight have no tools, whose quiet changes allow repeats.
    """
    episodes = draw(draw(st.sampled_from([_LASTING] * 4 + [_LOUD] * 3 + [_EXPIRING])))
    return Plan(
        draw(st.integers(20, 160)),
        draw(st.sampled_from([10, 10, 300, 40_000])),
        draw(st.tuples(*[st.sampled_from([4, 5])] * PUBLISHERS)),
        draw(st.tuples(*[_HABITS] * SUBSCRIBERS)),
        tuple(step for episode in episodes for step in episode),
    )
