"""Messages with QoS 0 for Sessions of other nodes: gathered in each turn, and given to the own Sessions in order.

How it works. A message for other nodes waits until the end of the reactor's turn, and leaves with all others for the
same node as one *run*. Nothing of it is stored; a run that is lost is counted.

Rows and runs of one topic keep their order. A row is applied only behind the runs that were sent before its hint
(:mod:`.crossing`). A run names the number of the last row of its topics that was sent before it, and waits here until
this node has passed that row. Later runs of the same node wait behind it:

    row 7 of plant/a, then a QoS 0 message of plant/a    the run is "behind 7"
    the run arrives while the rows up to 6 are applied   it waits
    row 7 is applied                                     the run is delivered

A run waits for the last one of the rows before its messages. So when a row follows a message of its topic, the run with
that message leaves first, and the next message begins another run.

The numbers of the last rows are remembered for :data:`_MOST_TOPICS` topics. Beyond that, a run may pass an older row.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime

from holdfast.cluster.messages import CrossingMessage, Run
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket
from holdfast.wire import encode_properties
from holdfast.wire.property_codec import decode_properties

#: the topics whose last row is remembered
_MOST_TOPICS = 10_000
#: the bytes of runs of one node that wait here for rows
_MOST_WAITING = 16 << 20
#: messages that are delivered in one turn
_PER_TURN = 200
#: the bytes of a run, about
_RUN_BYTES = 200 << 10
#: the type of a PUBLISH, for its properties
_PUBLISH = 3
#: Seconds that a run waits for a row: it may have been refused, so that nobody ever passes it. If the row is late, the
#: run would be older than the row that comes next, or come before it; so it is dropped, as QoS 0 may be.
_PATIENCE = 2.0


class LastRows:
    """The numbers of the last rows of topics, of the latest ones."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[str, int] = OrderedDict()

    def note(self, topic: str, number: int) -> None:
        """Note that a row of a topic has this number."""
        numbers = self._numbers
        numbers[topic] = number
        numbers.move_to_end(topic)
        if len(numbers) > _MOST_TOPICS:
            numbers.popitem(last=False)

    def of(self, topic: str) -> int:
        """Return the number of the last row of a topic, 0 if none is known."""
        return self._numbers.get(topic, 0)


class OutgoingRuns:
    """Gathers messages for other nodes until the turn ends. ``send`` sends a run to a node."""

    def __init__(self, clock: IReactorTime, rows: LastRows, send: Callable[[int, Run], None]) -> None:
        self._clock = clock
        self._rows = rows
        self._send = send
        self._gathered: dict[int, list[CrossingMessage]] = {}
        self._behind: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._topics: set[str] = set()  # of the gathered messages
        self._is_due = False
        #: messages sent to other nodes
        self.sent = 0

    def add(self, message: ApplicationMessage, nodes: Sequence[int], share: str | None = None) -> None:
        """Let a message cross to these nodes; with a ``share``, to one member of this group."""
        crossing = CrossingMessage(
            message.topic, message.payload, encode_properties(message.properties), message.client_id, message.username,
            message.expires_at, share,
        )  # fmt: skip
        size = len(message.topic) + len(message.payload) + 50
        behind = self._rows.of(message.topic)
        self._topics.add(message.topic)
        for node in nodes:
            gathered = self._gathered.setdefault(node, [])
            gathered.append(crossing)
            self._behind[node] = max(behind, self._behind.get(node, 0))
            self._bytes[node] = self._bytes.get(node, 0) + size
            self.sent += 1
            if self._bytes[node] >= _RUN_BYTES:
                self.flush(node)
        if not self._is_due:
            self._is_due = True
            self._clock.callLater(0, self._flush_all)

    def row_follows(self, topic: str) -> None:
        """Send what is gathered if it has messages of this topic: a run as a whole must not wait for the next row."""
        if topic in self._topics:
            self._send_all()

    def flush(self, node: int) -> None:
        """Send all that is gathered for a node now: a hint that comes next must come behind it."""
        gathered = self._gathered.pop(node, None)
        if gathered:
            self._bytes.pop(node, None)
            self._send(node, Run(self._behind.pop(node, 0), tuple(gathered)))

    def _flush_all(self) -> None:
        self._is_due = False
        self._send_all()

    def _send_all(self) -> None:
        self._topics.clear()
        for node in list(self._gathered):
            self.flush(node)


class IncomingRuns:
    """The runs of one other node. ``deliver`` gives a message and its share to the own Sessions."""

    def __init__(
        self,
        clock: IReactorTime,
        when_passed: Callable[[int], CommitTicket],
        deliver: Callable[[ApplicationMessage, str | None], None],
    ) -> None:
        """``when_passed`` returns a ticket that is settled when the row of this number of the other node is passed."""
        self._clock = clock
        self._when_passed = when_passed
        self._deliver = deliver
        self._waiting: deque[Run] = deque()
        self._bytes = 0
        self._waits = False
        #: messages received, and those that found no room
        self.received = self.lost = 0

    def take(self, run: Run) -> None:
        """Deliver a run behind the earlier ones, once the rows before it are applied."""
        size = _size(run)
        if self._bytes + size > _MOST_WAITING:
            self.lost += len(run.messages)
            return
        self._waiting.append(run)
        self._bytes += size
        if not self._waits:
            self._go_on()

    def _go_on(self) -> None:
        """Deliver the waiting runs, as many messages as a turn may take."""
        self._waits = False
        left = _PER_TURN
        while self._waiting:
            run = self._waiting[0]
            passed = self._when_passed(run.behind)
            if not passed.settled:
                self._wait(run, passed)
                return
            if left <= 0:
                self._waits = True
                self._clock.callLater(0, self._go_on)
                return
            self._waiting.popleft()
            self._bytes -= _size(run)
            now, later = run.messages[:left], run.messages[left:]
            if later:
                rest = Run(0, later)
                self._waiting.appendleft(rest)
                self._bytes += _size(rest)
            left -= len(now)
            self.received += len(now)
            for each in now:
                message = ApplicationMessage(
                    each.topic, each.payload, 0, False, each.client_id, each.username,
                    decode_properties(each.properties, _PUBLISH), each.expires_at,
                )  # fmt: skip
                self._deliver(message, each.share)

    def _wait(self, run: Run, passed: CommitTicket) -> None:
        """Go on when the row is passed. If it is awaited for too long, drop all runs whose rows are not passed."""
        self._waits = True

        def go_on(_: object = None) -> None:
            if self._waiting and self._waiting[0] is run:
                if patience.active():
                    patience.cancel()
                self._waiting[0] = Run(0, run.messages)
                self._go_on()

        def give_up() -> None:
            while self._waiting and not self._when_passed(self._waiting[0].behind).settled:
                dropped = self._waiting.popleft()
                self._bytes -= _size(dropped)
                self.lost += len(dropped.messages)
            self._go_on()

        patience = self._clock.callLater(_PATIENCE, give_up)
        passed.when_settled(go_on)


def _size(run: Run) -> int:
    return sum(len(each.payload) + len(each.topic) + 50 for each in run.messages)
