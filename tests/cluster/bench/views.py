"""A history as publications, Sessions and subscriptions: what the checks compare.

"Before" and "after" are places in the history. One process has written it, so if SUBACK is before a PUBLISH there, it
was received before that was sent.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from attrs import define, field, frozen

from holdfast.core.topics import matches
from tests.cluster.bench.history import (
    Acknowledged,
    Asked,
    Closed,
    Connected,
    Delivered,
    Granted,
    History,
    Phase,
    Published,
    WillSet,
)

#: the place of what has not happened
NEVER = 1 << 62
_REFUSED = 0x80


@define(eq=False)
class Publication:
    """One message. ``first`` and ``last`` are the places where it was sent, ``acknowledged`` of the first answer."""

    number: int
    topic: str
    qos: int
    retain: bool
    clear: bool
    client: str
    first: int
    last: int
    acknowledged: int = NEVER

    @property
    def is_repeated(self) -> bool:
        """Whether it was sent more than once: with QoS 1, it may have been published more than once."""
        return self.last != self.first

    @property
    def is_acknowledged(self) -> bool:
        """Whether PUBACK or PUBREC came, without an error."""
        return self.acknowledged != NEVER


@define(eq=False)
class Subscription:
    """A SUBSCRIBE with SUBACK. ``asked`` and ``granted`` are their places; ``session`` is the Session that has it."""

    session: Session
    connection: int
    topic_filter: str
    qos: int
    asked: int
    granted: int

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to a group."""
        return self.topic_filter.startswith("$share/")

    def takes(self, topic: str) -> bool:
        """Tell whether the filter matches a topic."""
        return _matches(self.topic_filter, topic)


@define(eq=False)
class Session:
    """A Session of a client. ``connections`` are its connections, by number, with the places where they were closed.

    ``ended`` is the place where the client has ended it, or has found it lost.
    """

    client: str
    lasting: bool
    began: int
    ended: int = NEVER
    connections: dict[int, int] = field(factory=dict)
    subscriptions: list[Subscription] = field(factory=list)

    @property
    def is_open(self) -> bool:
        """Whether its client is connected in the end."""
        return any(closed == NEVER for closed in self.connections.values())

    @property
    def plain(self) -> list[Subscription]:
        """The earliest SUBACK for each Topic Filter that belongs to no group."""
        earliest: dict[str, Subscription] = {}
        for each in self.subscriptions:
            if not each.is_shared:
                earliest.setdefault(each.topic_filter, each)
        return list(earliest.values())


@frozen
class Delivery:
    """A message that came, and its place."""

    place: int
    connection: int
    topic: str
    number: int | None
    qos: int
    retain: bool
    dup: bool
    empty: bool


@define(eq=False)
class LostSession:
    """A stored Session that its client did not find again."""

    client: str
    at: float


@define(eq=False)
class View:
    """Everything that the checks compare. ``by_topic`` has the publications of clients by topic, without Wills."""

    history: History
    publications: dict[int, Publication] = field(factory=dict)
    by_topic: dict[str, list[Publication]] = field(factory=lambda: defaultdict(list))
    wills: list[tuple[int, WillSet]] = field(factory=list)
    sessions: list[Session] = field(factory=list)
    deliveries: dict[str, list[Delivery]] = field(factory=lambda: defaultdict(list))
    closings: dict[int, tuple[int, Closed]] = field(factory=dict)
    connects: dict[str, list[tuple[int, Connected]]] = field(factory=lambda: defaultdict(list))
    lost: list[LostSession] = field(factory=list)
    phases: dict[str, int] = field(factory=dict)
    #: topics on which several clients have published, and those that several clients have set; topics of Wills
    common: frozenset[str] = frozenset()
    contested: frozenset[str] = frozenset()
    will_topics: frozenset[str] = frozenset()

    @classmethod
    def of(cls, history: History) -> View:
        """Read a history."""
        view = cls(history)
        present: dict[str, Session] = {}
        by_connection: dict[int, Session] = {}
        asked: dict[tuple[int, str], int] = {}
        for place, event in enumerate(history.events):
            match event:
                case Published():
                    view._publish(place, event)
                case Acknowledged():
                    made = view.publications.get(event.number)
                    if made is not None and event.reason < _REFUSED:
                        made.acknowledged = min(place, made.acknowledged)
                case Delivered():
                    view.deliveries[event.client].append(
                        Delivery(place, event.connection, event.topic, event.number, event.qos, event.retain,
                                 event.dup, event.empty)
                    )  # fmt: skip
                case Connected():
                    by_connection[event.connection] = view._connect(place, event, present)
                case Closed():
                    view._close(place, event, by_connection, present)
                case Asked():
                    asked[event.connection, event.topic_filter] = place
                case Granted() if event.granted < _REFUSED and event.connection in by_connection:
                    session = by_connection[event.connection]
                    before = asked.get((event.connection, event.topic_filter), place)
                    session.subscriptions.append(
                        Subscription(session, event.connection, event.topic_filter, event.granted, before, place)
                    )
                case WillSet():
                    view.wills.append((place, event))
                case Phase():
                    view.phases[event.name] = place
        view.common = frozenset(topic for topic, made in view.by_topic.items() if len({one.client for one in made}) > 1)
        view.contested = frozenset(
            topic for topic in view.common if len({one.client for one in view.by_topic[topic] if one.retain}) > 1
        )
        view.will_topics = frozenset(will.topic for _, will in view.wills)
        return view

    def _publish(self, place: int, event: Published) -> None:
        known = self.publications.get(event.number)
        if known is not None:
            known.last = place
            return
        made = Publication(
            event.number, event.topic, event.qos, event.retain, event.clear, event.client, place, place
        )  # fmt: skip
        self.publications[event.number] = made
        self.by_topic[event.topic].append(made)

    def _connect(self, place: int, event: Connected, present: dict[str, Session]) -> Session:
        self.connects[event.client].append((place, event))
        session = present.get(event.client)
        if session is not None and not event.present:
            if session.lasting and not event.clean and session.ended == NEVER:
                self.lost.append(LostSession(event.client, event.at))
            session.ended = min(place, session.ended)
            session = None
        if session is None:
            session = present[event.client] = Session(event.client, event.lasting, place)
            self.sessions.append(session)
        session.connections[event.connection] = NEVER
        return session

    def _close(self, place: int, event: Closed, by_connection: dict[int, Session], present: dict[str, Session]) -> None:
        self.closings[event.connection] = (place, event)
        session = by_connection.get(event.connection)
        if session is None:
            return
        session.connections[event.connection] = place
        if (event.over or not session.lasting) and not session.is_open:
            session.ended = min(place, session.ended)
            if present.get(event.client) is session:
                del present[event.client]

    def is_contested(self, topic: str) -> bool:
        """Tell whether several clients have set a topic, or a Will and a client: messages may come once more."""
        return topic in self.contested or topic in self.will_topics

    def counts(self, session: Session) -> dict[int, list[Delivery]]:
        """Return the deliveries of a Session by the numbers of their messages."""
        counted: dict[int, list[Delivery]] = defaultdict(list)
        for each in self.deliveries.get(session.client, ()):
            if each.connection in session.connections and each.number is not None:
                counted[each.number].append(each)
        return counted


@lru_cache(maxsize=100_000)
def _matches(topic_filter: str, topic: str) -> bool:
    if topic_filter.startswith("$share/"):
        topic_filter = topic_filter.split("/", 2)[2]
    return matches(topic_filter, topic)
