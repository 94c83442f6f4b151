"""What has been published and cleared in one example, numbered in order, and what must be retained in the end."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, frozen

from holdfast.topics import matches
from tests.e2e.never_stale.plan import Kind


@frozen
class Publication:
    """One publication. Values rise over all topics; a topic cleared by a tool has one that nobody is sent.

    ``numbered`` tells that the value is found in the packet, which an empty payload of MQTT 3.1.1 has no place for.
    """

    value: int
    topic: str
    kind: Kind
    qos: int
    publisher: str
    node: int
    numbered: bool


@frozen
class Cleaning:
    """A tool at work: its value, the filter, and the topics whose newest value had been accepted before."""

    value: int
    topic_filter: str
    settled: frozenset[str]


@define
class Ledger:
    """The truth about an example. Topics have one publisher at a time, so that values are accepted in order."""

    publications: dict[int, Publication]
    #: the newest change of what is retained, by topic
    newest: dict[str, Publication]
    #: the newest value known to be accepted by a node, by node and topic
    accepted: dict[int, dict[str, int]]
    #: the newest value known to be stored, whatever the node
    stored: dict[str, int]
    #: topics that a tool may or may not have cleared after their newest value
    racing: set[str]
    value: int = 0
    cleanings: int = 0  #: how many a tool has begun
    cleaning: Cleaning | None = None

    @classmethod
    def of_nodes(cls, nodes: int) -> Ledger:
        """Return an empty one."""
        return cls({}, {}, {node: {} for node in range(nodes)}, {}, set())

    def publish(self, topic: str, kind: Kind, qos: int, publisher: str, node: int, numbered: bool) -> Publication:
        """Take note of what is about to be published."""
        self.value += 1
        made = Publication(self.value, topic, kind, qos, publisher, node, numbered)
        self.publications[made.value] = made
        if kind is not Kind.PASSING:
            self.newest[topic] = made
            self.racing.discard(topic)
            if self.cleaning is not None and matches(self.cleaning.topic_filter, topic):
                self.racing.add(topic)
        return made

    def accept(self, value: int, stored: bool) -> None:
        """Take note that a publication is accepted by its node, and perhaps stored."""
        made = self.publications[value]
        if made.kind is Kind.PASSING:
            return
        for known in (self.accepted[made.node], self.stored) if stored else (self.accepted[made.node],):
            known[made.topic] = max(value, known.get(made.topic, 0))

    def is_accepted(self, made: Publication) -> bool:
        """Tell whether a publication is known to be accepted by its node."""
        return self.accepted[made.node].get(made.topic, 0) >= made.value

    def clean_begins(self, topic_filter: str) -> None:
        """A tool is about to be told to clear what matches."""
        assert self.cleaning is None
        settled = frozenset(
            topic
            for topic, made in self.newest.items()
            if matches(topic_filter, topic) and self.stored.get(topic, 0) >= made.value
        )
        self.value += 1
        self.cleanings += 1
        self.cleaning = Cleaning(self.value, topic_filter, settled)

    def clean_ended(self, node: int) -> None:
        """The tool says that it is done."""
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
            if made.kind is Kind.SET and topic not in self.racing:  # else there may have been nothing left to clear
                self.accepted[node][topic] = cleaning.value
            self.racing.discard(topic)

    def clears(self, topic: str) -> Iterator[Publication]:
        """Yield what was published to clear a topic, in order."""
        for made in self.publications.values():
            if made.topic == topic and made.kind is Kind.CLEAR and made.publisher:
                yield made

    def outcomes(self, topic: str) -> set[int | None]:
        """Return the values that may be retained in the end, None for nothing; what expires has expired by then."""
        made = self.newest[topic]
        present = {made.value} if made.kind is Kind.SET else {None}
        return present | {None} if topic in self.racing else present
