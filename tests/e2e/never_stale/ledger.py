"""The numbered publications and clears of one example, and the messages that must be retained in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, frozen

from holdfast.core.topics import matches
from tests.e2e.never_stale.plan import DELAYED_BRANCH, Kind
from tests.e2e.never_stale.revisions import Revisions


@frozen
class Publication:
    """One publication. Values rise over all topics. A clear by a tool has a value too, but is sent to no Client.

    ``numbered``: the packet contains the value. An empty message of MQTT 3.1.1 cannot contain it.
    """

    value: int
    topic: str
    kind: Kind
    qos: int
    publisher: str
    node: int
    numbered: bool

    @property
    def is_delayed(self) -> bool:
        """Whether it may wait in the memory of its node, so that other nodes do not know it."""
        return self.qos == 0 and f"/{DELAYED_BRANCH}/" in self.topic


@frozen
class Cleaning:
    """A clear by a tool: its value, the filter, and the topics whose newest value was stored before."""

    value: int
    topic_filter: str
    settled: frozenset[str]


@define
class Ledger:
    """The facts of an example. A topic has one publisher at a time, so its values are accepted in order."""

    publications: dict[int, Publication]
    #: the newest retained change, by topic
    newest: dict[str, Publication]
    #: the newest value known to be accepted by a node, by node and topic
    accepted: dict[int, dict[str, int]]
    #: the newest value known to be in the database, by topic
    stored: dict[str, int]
    #: the newest value after which the topic may have been empty, by topic
    emptied: dict[str, int]
    #: the payload of the newest retained change, by topic
    payloads: dict[str, bytes]
    #: the revisions that the brokers have told
    revisions: Revisions
    #: topics that a tool may or may not have cleared after their newest value
    racing: set[str]
    #: the begins and ends of a tool's quiet changes, and the number under way, by node
    quiet: dict[int, int]
    quietly_busy: dict[int, int]
    value: int = 0
    has_expiring: bool = False
    cleaning: Cleaning | None = None

    @classmethod
    def of_nodes(cls, nodes: int) -> Ledger:
        """Return an empty ledger."""
        none = dict.fromkeys(range(nodes), 0)
        accepted: dict[int, dict[str, int]] = {node: {} for node in range(nodes)}
        return cls({}, {}, accepted, {}, {}, {}, Revisions({}), set(), dict(none), dict(none))

    @contextmanager
    def quietly(self, node: int) -> Iterator[None]:
        """Note that a tool changes retained messages of a node, and that subscribers are not told."""
        self.quiet[node] += 1
        self.quietly_busy[node] += 1
        try:
            yield
        finally:
            self.quiet[node] += 1
            self.quietly_busy[node] -= 1

    def publish(self, topic: str, kind: Kind, qos: int, publisher: str, node: int, numbered: bool) -> Publication:
        """Note a publication before it is sent."""
        self.value += 1
        made = Publication(self.value, topic, kind, qos, publisher, node, numbered)
        self.publications[made.value] = made
        self.has_expiring |= kind is Kind.EXPIRING
        if kind is not Kind.PASSING:
            self.newest[topic] = made
            if kind is not Kind.SET:
                self.emptied[topic] = made.value
            self.racing.discard(topic)
            if self.cleaning is not None and matches(self.cleaning.topic_filter, topic):
                self.racing.add(topic)
                self.emptied[topic] = made.value
        return made

    def accept(self, value: int, stored: bool) -> None:
        """Note that the node has accepted a publication, and perhaps stored it."""
        made = self.publications[value]
        if made.kind is Kind.PASSING:
            return
        known_to_all = stored and not made.is_delayed
        for known in (self.accepted[made.node], self.stored) if known_to_all else (self.accepted[made.node],):
            known[made.topic] = max(value, known.get(made.topic, 0))

    def written(self, node: int) -> None:
        """Note that a node has written all delayed messages that it has accepted."""
        for topic, made in self.newest.items():
            if made.is_delayed and made.node == node and self.is_accepted(made):
                self.stored[topic] = max(made.value, self.stored.get(topic, 0))

    def is_accepted(self, made: Publication) -> bool:
        """Tell whether the node is known to have accepted a publication."""
        return self.accepted[made.node].get(made.topic, 0) >= made.value

    def clean_begins(self, topic_filter: str) -> None:
        """Note that a tool is about to clear the matching topics."""
        assert self.cleaning is None
        settled = frozenset(
            topic
            for topic, made in self.newest.items()
            if matches(topic_filter, topic) and self.stored.get(topic, 0) >= made.value
        )
        self.value += 1
        self.emptied |= dict.fromkeys((topic for topic in self.newest if matches(topic_filter, topic)), self.value)
        self.cleaning = Cleaning(self.value, topic_filter, settled)

    def clean_ended(self, node: int) -> None:
        """Note that the tool has finished."""
        cleaning = self.cleaning
        assert cleaning is not None
        self.cleaning = None
        for topic, made in self.newest.items():
            if made.value > cleaning.value or not matches(cleaning.topic_filter, topic):
                continue
            if topic not in cleaning.settled:
                self.racing.add(topic)
                continue
            cleared = Publication(cleaning.value, topic, Kind.CLEAR, 0, "", node, False)
            self.publications[cleaning.value] = self.newest[topic] = cleared
            self.stored[topic] = cleaning.value
            if made.kind is Kind.SET and topic not in self.racing:  # else the topic may have been empty already
                self.accepted[node][topic] = cleaning.value
            self.racing.discard(topic)

    def is_set_by_several(self, topic: str) -> bool:
        """Tell whether several nodes have set or cleared a topic: its stored message may be sent once more then."""
        made = (each for each in self.publications.values() if each.topic == topic and each.kind is not Kind.PASSING)
        return len({each.node for each in made}) > 1

    def is_certain(self, topic: str, node: int) -> bool:
        """Tell whether it is known which message a node finds on a topic behind all that its publisher has sent."""
        made = self.newest.get(topic)
        if made is None or made.kind is Kind.EXPIRING or topic in self.racing:
            return False
        cleaned = self.cleaning is not None and matches(self.cleaning.topic_filter, topic)
        return not cleaned and (made.node == node or not made.is_delayed)

    def refuse(self) -> int:
        """Return a value for a message that must be refused: nobody may receive it."""
        self.value += 1
        return self.value

    def known(self, node: int) -> dict[str, int]:
        """Return the values, by topic, that a reader on this node gets now, or newer ones."""
        known = dict(self.stored)
        for topic, value in self.accepted[node].items():
            known[topic] = max(value, known.get(topic, 0))
        return known

    def ends(self, topic: str) -> Iterator[Publication]:
        """Yield the published clears of a topic and its messages that expire, in order."""
        for made in self.publications.values():
            if made.topic == topic and made.kind in (Kind.CLEAR, Kind.EXPIRING) and made.publisher:
                yield made

    def outcomes(self, topic: str) -> set[int | None]:
        """Return the values that may be retained in the end, None for no message. Expiring messages have expired."""
        made = self.newest[topic]
        outcomes: set[int | None] = {made.value if made.kind is Kind.SET else None}
        return outcomes | {None} if topic in self.racing else outcomes
