"""Messages with QoS 0 for Sessions of other nodes: gathered in each turn, and given to the own Sessions in order.

How it works. A message for other nodes waits until the end of the reactor's turn, and leaves with all others for the
same node as one *run*. Nothing of it is stored; a run that is lost is counted.

Rows and runs of one topic keep their order. A row is applied only behind the runs that were sent before its hint
(:mod:`.crossing`). A run names the number of the last row of its topics that was sent to the same node before it, and
waits here until this node has passed that row. Later runs of the same node wait behind it:

    row 7 of plant/a, then a QoS 0 message of plant/a    the run is "behind 7"
    the run arrives while the rows up to 6 are applied   it waits
    row 7 is applied                                     the run is delivered

A run waits for the last one of the rows before its messages. So when a row follows a message of its topic, the run with
that message leaves first, and the next message begins another run.

The numbers of the last rows are remembered for :data:`_MOST_TOPICS` topics. Beyond that, a run may pass an older row.
A run whose row has not come for :data:`_PATIENCE` is dropped, and counted as lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.cluster.messages import CrossingMessage, Run
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket
from holdfast.wire import encode_properties
from holdfast.wire.datatypes import WireError
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
#: Seconds that a run waits for a row. If the row is late, the run would come before it, or be older than the row that
#: comes next; so it is dropped, as QoS 0 may be.
_PATIENCE = 2.0


class LastRows:
    """The numbers of the last rows of topics for each node, of the latest topics.

    A node is told of the rows for itself only. It must not wait for others.
    """

    def __init__(self) -> None:
        self._numbers: OrderedDict[str, dict[int, int]] = OrderedDict()

    def note(self, topic: str, number: int, nodes: Sequence[int]) -> None:
        """Note that a row of a topic, for these nodes, has this number."""
        numbers = self._numbers
        of_topic = numbers.setdefault(topic, {})
        for node in nodes:
            of_topic[node] = number
        numbers.move_to_end(topic)
        if len(numbers) > _MOST_TOPICS:
            numbers.popitem(last=False)

    def forget(self, topic: str, number: int) -> None:
        """Note that the row of this number has not been stored: nobody ever passes it."""
        of_topic = self._numbers.get(topic, {})
        for node in [node for node, last in of_topic.items() if last == number]:
            del of_topic[node]

    def of(self, topic: str, node: int) -> int:
        """Return the number of the last row of a topic for a node, 0 if none is known."""
        of_topic = self._numbers.get(topic)
        return 0 if of_topic is None else of_topic.get(node, 0)


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
        size = _message_size(crossing)
        self._topics.add(message.topic)
        for node in nodes:
            gathered = self._gathered.setdefault(node, [])
            gathered.append(crossing)
            self._behind[node] = max(self._rows.of(message.topic, node), self._behind.get(node, 0))
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

    _log = Logger()

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
        self._wait: object | None = None  # what goes on with the waiting runs: only the present wait may
        self._timer: IDelayedCall | None = None
        #: messages received, and those that found no room or are malformed
        self.received = self.lost = 0

    def take(self, run: Run) -> None:
        """Deliver a run behind the earlier ones, once the rows before it are applied."""
        size = _size(run)
        if self._waiting and self._bytes + size > _MOST_WAITING:
            self.lost += len(run.messages)
            return
        self._waiting.append(run)
        self._bytes += size
        if self._wait is None:
            self._go_on()

    def forget(self) -> None:
        """Leave out the waiting runs: their process is gone, and the rows before them may never come."""
        self.lost += sum(len(run.messages) for run in self._waiting)
        self._waiting.clear()
        self._bytes = 0
        self._end_wait()

    def _go_on(self) -> None:
        """Deliver the waiting runs, as many messages as a turn may take."""
        left = _PER_TURN
        while self._waiting:
            run = self._waiting[0]
            passed = self._when_passed(run.behind)
            if not passed.settled:
                self._wait_for(passed)
                return
            if left <= 0:
                self._wait = object()
                self._timer = self._clock.callLater(0, self._resume, self._wait)
                return
            self._waiting.popleft()
            self._bytes -= _size(run)
            now, later = run.messages[:left], run.messages[left:]
            if later:
                rest = Run(0, later)
                self._waiting.appendleft(rest)
                self._bytes += _size(rest)
            left -= len(now)
            for each in now:
                self._deliver_one(each)

    def _deliver_one(self, crossing: CrossingMessage) -> None:
        try:
            properties = decode_properties(crossing.properties, _PUBLISH)
        except WireError as wrong:
            self.lost += 1
            self._log.error("a message of another node has malformed properties: {wrong}", wrong=wrong)
            return
        self.received += 1
        message = ApplicationMessage(
            crossing.topic, crossing.payload, 0, False, crossing.client_id, crossing.username, properties,
            crossing.expires_at,
        )  # fmt: skip
        self._deliver(message, crossing.share)

    def _wait_for(self, passed: CommitTicket) -> None:
        wait = self._wait = object()
        self._timer = self._clock.callLater(_PATIENCE, self._give_up)
        passed.when_settled(lambda _: self._resume(wait))

    def _resume(self, wait: object) -> None:
        if wait is self._wait:
            self._end_wait()
            self._go_on()

    def _give_up(self) -> None:
        """Drop all runs whose rows are not passed."""
        self._end_wait()
        while self._waiting and not self._when_passed(self._waiting[0].behind).settled:
            dropped = self._waiting.popleft()
            self._bytes -= _size(dropped)
            self.lost += len(dropped.messages)
        self._go_on()

    def _end_wait(self) -> None:
        self._wait = None
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _size(run: Run) -> int:
    return sum(map(_message_size, run.messages))


def _message_size(crossing: CrossingMessage) -> int:
    return len(crossing.topic) + len(crossing.payload) + len(crossing.properties) + 50
