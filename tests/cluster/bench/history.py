"""What happened in a cycle, as the clients and the bench saw it: events that are only appended.

Each publication has a number of its own, its payload (or the Correlation Data of an empty message). Numbers rise over
all topics, so those of one publisher on one topic rise too. Times are seconds since the cycle began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, define, field, frozen

#: A cycle has some ten thousand events. More than that is a fault of the bench.
MOST_EVENTS = 2_000_000


@frozen
class Event:
    """Something that happened. ``at`` is its time."""

    at: float


@frozen
class OfClient(Event):
    """Something that happened on a Network Connection, whose numbers rise over all clients."""

    client: str
    connection: int


@frozen
class Connected(OfClient):
    """CONNACK came, ``waited`` seconds after the client wanted it. The Session of ``lasting`` clients is stored."""

    node: int
    lasting: bool
    clean: bool
    present: bool
    waited: float


@frozen
class Closed(OfClient):
    """The connection ended. ``reason`` is that of DISCONNECT; None if there was none.

    ``by`` is "client" (with DISCONNECT), "abort" (by the client, without one), or "broker" (or the network).
    ``over``: the client ended its Session as well.
    """

    by: str
    reason: int | None
    over: bool


@frozen
class Asked(OfClient):
    """SUBSCRIBE was sent, with Retain Handling 0."""

    topic_filter: str
    qos: int


@frozen
class Granted(OfClient):
    """SUBACK came. ``granted`` is its Reason Code."""

    topic_filter: str
    qos: int
    granted: int


@frozen
class Published(OfClient):
    """PUBLISH was sent, perhaps once more (``again``). ``clear``: it has RETAIN 1 and is empty."""

    number: int
    topic: str
    qos: int
    retain: bool
    clear: bool
    again: bool


@frozen
class Acknowledged(OfClient):
    """PUBACK or PUBREC came."""

    number: int
    reason: int


@frozen
class Delivered(OfClient):
    """A message came. With QoS 2, one that comes again before its PUBREL is none.

    ``number`` is None for an empty message without a number. ``retain`` is the flag on the wire.
    """

    topic: str
    number: int | None
    qos: int
    retain: bool
    dup: bool
    empty: bool


@frozen
class WillSet(OfClient):
    """CONNECT was sent with a Will. ``delay`` is the Will Delay Interval in seconds."""

    number: int
    topic: str
    qos: int
    delay: int


@frozen
class Stillness(Event):
    """A client that wanted an answer waited so many seconds for it."""

    client: str
    seconds: float
    what: str


@frozen
class Fault(Event):
    """A fault began or ended. ``node`` is 0 if it concerns all. ``fences``: nodes may have to end for it."""

    name: str
    node: int
    begins: bool
    fences: bool


@frozen
class NodeEnded(Event):
    """The process of a node ended. The status is negative for a signal."""

    node: int
    status: int


@frozen
class NodeReady(Event):
    """A node serves clients."""

    node: int


@frozen
class Measured(Event):
    """A sample of what the nodes hold: bytes of memory by node, and what waits in the database."""

    memory: dict[str, int]
    runs: int
    rows: int


@frozen
class Phase(Event):
    """A phase of the cycle began: "calm", "faults", "healed", "groups", "quiet", "checked"."""

    name: str


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Connected, Closed, Asked, Granted, Published, Acknowledged, Delivered, WillSet, Stillness, Fault, NodeEnded,
        NodeReady, Measured, Phase,
    )
}  # fmt: skip


@define
class History:
    """The events of one cycle, in order."""

    events: list[Event] = field(factory=list)

    def append(self, event: Event) -> None:
        """Add an event. Raises OverflowError if there are too many."""
        if len(self.events) >= MOST_EVENTS:
            raise OverflowError(f"more than {MOST_EVENTS} events in one cycle")
        self.events.append(event)

    def of(self, *kinds: type[Any]) -> Iterator[Any]:
        """Yield the events of some kinds."""
        return (event for event in self.events if isinstance(event, kinds))

    def phase(self, name: str) -> float | None:
        """Return when a phase began; None if it did not."""
        return next((event.at for event in self.of(Phase) if event.name == name), None)

    def save(self, path: Path, heads: Iterable[dict[str, Any]] = ()) -> None:
        """Write the history as JSON lines, behind some lines of the caller's."""
        with path.open("w") as file:
            for head in heads:
                file.write(json.dumps(head) + "\n")
            for event in self.events:
                file.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        """Read a history that was saved, without the lines before it."""
        history = cls()
        with path.open() as file:
            for line in file:
                values = json.loads(line)
                name = values.pop("event", None)
                if name is not None:
                    history.append(_KINDS[name](**values))
        return history


@frozen
class Stored:
    """What the database had in the end.

    ``retained`` has the numbers by topic; 0 for a payload that is no number. ``sessions`` has the owners by Client
    Identifier, one for each row; None: nobody. ``commits`` has the incarnations of a node that each of its writing
    connections has committed in.
    """

    retained: dict[str, int] = field(factory=dict)
    sessions: dict[str, tuple[int | None, ...]] = field(factory=dict)
    commits: dict[tuple[int, str], tuple[int, ...]] = field(factory=dict)
    runs: int = 0
    rows: int = 0


@frozen
class Violation:
    """A broken invariant. ``client``, ``topic`` and ``number`` say where to look in the history, if they are known."""

    invariant: int
    what: str
    client: str = ""
    topic: str = ""
    number: int | None = None

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (("client", self.client), ("topic", self.topic), ("number", self.number))
            if value not in ("", None)
        )
        return f"invariant {self.invariant}: {self.what}" + (f" ({where})" if where else "")


def around(history: History, violation: Violation) -> list[Event]:
    """Return the events that concern a violation: its message, its client's connections, the faults, the phases."""
    takes: list[Callable[[Event], bool]] = [lambda event: isinstance(event, Fault | NodeEnded | NodeReady | Phase)]
    if violation.number is not None:
        takes.append(lambda event: getattr(event, "number", None) == violation.number)
    if violation.client:
        takes.append(
            lambda event: isinstance(event, Connected | Closed | Asked | Granted) and event.client == violation.client
        )
        if violation.topic:
            takes.append(
                lambda event: (
                    isinstance(event, Delivered) and event.client == violation.client and event.topic == violation.topic
                )
            )
    if violation.topic:
        takes.append(lambda event: isinstance(event, Published | WillSet) and event.topic == violation.topic)
    return [event for event in history.events if any(take(event) for take in takes)]
