"""A Client that asks for the retained messages, and for those of a moment, and judges the answers."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import sys
import time
from typing import Any

from attrs import define, field

from holdfast.core.extensions import PARTICIPATION
from holdfast.core.topics import ASK_GET, matches
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.link import Link
from tests.e2e.never_stale.subscriber import MARKERS, Conduct
from tests.e2e.never_stale.witness import Violation

#: A moment is over after this time, in seconds: times of changes are in milliseconds.
_MOMENT = 0.002
#: So much, in seconds, may the clocks of two brokers on one machine differ: each leaves 10 ms uncorrected
#: (``scheduling/deadlines.py``). Times in the history never decrease: a change may have the time of the faster clock.
_CLOCKS_DIFFER = 0.02
#: The prefix of the past for the moment of the SUBSCRIBE.
_NOW = "$history/at/-0s/"
#: The broker answers one question of a Client at a time, and lets four more wait.
_MOST_QUESTIONS = 4


@define
class Inquiry:
    """A question under way: the known values as it was sent, the published ones, and what has come, by topic."""

    topic_filter: str
    known: dict[str, int]
    upto: int
    came: dict[str, int] = field(factory=dict)
    at: str = ""  #: the prefix of the past, empty for a question


class Inquirer:
    """Asks on one Network Connection of a node. Does not wait for answers, but for a moment of the past to end."""

    def __init__(self, client_id: str, node: int, port: int, ledger: Ledger, conduct: Conduct) -> None:
        self.client_id = client_id
        self.answered = 0
        self._node = node
        self._port = port
        self._ledger = ledger
        self._conduct = conduct
        self._answers = f"{client_id}/answers"
        self._link: Link | None = None
        self._numbers = itertools.cycle(range(1, 65_536))
        self._open: dict[int, Inquiry] = {}
        self._progress = asyncio.Event()

    def has_everything(self) -> bool:
        """Tell whether all answers have come."""
        return not self._open

    def __str__(self) -> str:
        return f"{self.client_id}, which waits for {list(self._open.values())}"

    async def ask(self, topic_filter: str) -> None:
        """Ask for the retained messages. If many questions wait already, wait for an answer."""
        link = await self._begin()
        while sum(not inquiry.at for inquiry in self._open.values()) >= _MOST_QUESTIONS and not link.closed:
            self._progress.clear()
            await self._progress.wait()
        self._ask(topic_filter, "", b"")

    async def look_back(self, topic_filter: str) -> None:
        """Subscribe to the retained messages of this moment, or of the one at which the broker takes the SUBSCRIBE.

        The history has delayed messages from their write on. What waits when the broker takes the SUBSCRIBE is written
        then: too late for a moment before, early enough for that of the SUBSCRIBE.
        """
        link = await self._begin()
        number = next(self._numbers)
        if number % 2 or any((_NOW, topic_filter) == (other.at, other.topic_filter) for other in self._open.values()):
            at = f"$history/at/{int(1000 * time.time())}/"
            inquiry = Inquiry(topic_filter, dict(self._ledger.stored), self._ledger.value, at=at)
        else:
            at = _NOW
            inquiry = Inquiry(topic_filter, self._ledger.known(self._node), sys.maxsize, at=at)
            await asyncio.sleep(_CLOCKS_DIFFER)
        self._open[number] = inquiry
        link.send(p.Subscribe(number, (p.SubscriptionRequest(at + topic_filter, 1),)))
        await asyncio.sleep(_MOMENT)

    def leave(self) -> None:
        """Disconnect."""
        if self._link is not None:
            self._link.leave(p.Disconnect())

    async def _begin(self) -> Link:
        if self._link is None:
            link = self._link = Link(5, self._take, self._ended)
            await link.connect(self._port, 1 << 18)
            wishes = Properties(user_properties=((PARTICIPATION, "?"),))
            link.send(p.Connect(self.client_id, 5, True, properties=wishes))
            requests = (p.SubscriptionRequest(self._answers, 1), p.SubscriptionRequest(MARKERS, 1))
            link.send(p.Subscribe(next(self._numbers), requests))
        return self._link

    def _ask(self, topic_filter: str, after: str, last: bytes) -> None:
        """Ask for the page behind the topic ``last``."""
        number = next(self._numbers)
        known = {topic: value for topic, value in self._ledger.known(self._node).items() if topic.encode() > last}
        self._open[number] = Inquiry(topic_filter, known, self._ledger.value)
        question: dict[str, Any] = {"filter": topic_filter, "limit": 1000, "fields": ["payload", "revision"]}
        if after:
            question["after"] = after
        properties = Properties(response_topic=self._answers, correlation_data=b"%d" % number)
        assert self._link is not None
        self._link.send(p.Publish(ASK_GET, json.dumps(question).encode(), 1, False, False, number, properties))

    def _take(self, packet: p.Packet) -> None:
        self._conduct.changed.set()
        self._progress.set()
        match packet:
            case p.Publish():
                try:
                    self._take_message(packet)
                except Violation as violation:
                    self._conduct.complain(violation)
                if packet.qos and self._link is not None:
                    self._link.send(p.Puback(packet.packet_identifier))
            case p.Puback() if packet.reason_code >= 0x80:
                self._conduct.complain(Violation(f"{self.client_id}: {packet}"))
            case p.Suback() if any(code > 2 for code in packet.reason_codes):
                self._conduct.complain(Violation(f"{self.client_id}: {packet}"))

    def _take_message(self, packet: p.Publish) -> None:
        if packet.topic == self._answers:
            self._take_answer(packet)
        elif packet.topic == MARKERS:
            self._take_marker(packet)
        else:
            for inquiry in self._open.values():
                if inquiry.at and packet.topic.startswith(inquiry.at):
                    topic = packet.topic.removeprefix(inquiry.at)
                    if matches(inquiry.topic_filter, topic):
                        self._note(inquiry, topic, packet.payload)

    def _take_answer(self, packet: p.Publish) -> None:
        number = int(packet.properties.correlation_data or 0)
        inquiry = self._open[number]
        answer = json.loads(packet.payload)
        if "error" in answer:
            raise Violation(f"{self.client_id}: {answer}")
        for message in answer["messages"]:
            topic = message["topic"]
            value = self._note(inquiry, topic, base64.b64decode(message["payload"]))
            if not self._ledger.revisions.told(topic, value, int(message["revision"])):
                raise Violation(
                    f"{self.client_id}: {topic}: {value} has the revision {message['revision']}, "
                    f"before {self._ledger.revisions.of(topic)}"
                )
        if answer["after"] is None:
            self._judge(number)
        else:  # the topics behind the last one are of the next page
            last = answer["messages"][-1]["topic"].encode()
            inquiry.known = {topic: value for topic, value in inquiry.known.items() if topic.encode() <= last}
            self._judge(number)
            self._ask(inquiry.topic_filter, answer["after"], last)

    def _take_marker(self, packet: p.Publish) -> None:
        marker = json.loads(packet.payload)
        for number, inquiry in list(self._open.items()):
            if inquiry.at and marker["filter"] == inquiry.at + inquiry.topic_filter:
                if not (marker["replayed"] and marker["complete"]):
                    raise Violation(f"{self.client_id}: {marker}")
                self._judge(number)
                assert self._link is not None
                self._link.send(p.Unsubscribe(next(self._numbers), (marker["filter"],)))

    def _note(self, inquiry: Inquiry, topic: str, payload: bytes) -> int:
        made = self._ledger.publications.get(int(payload.split()[0]))
        if made is None or made.topic != topic:
            raise Violation(f"{self.client_id}: nobody published {payload[:20]!r} on {topic}")
        if inquiry.at and made.value > inquiry.upto:
            raise Violation(f"{self.client_id}: {topic} has {made.value} of after {inquiry.at}")
        inquiry.came[topic] = made.value
        return made.value

    def _judge(self, number: int) -> None:
        """Require the known values or newer ones."""
        inquiry = self._open.pop(number)
        self.answered += 1
        for topic, known in inquiry.known.items():
            if not matches(inquiry.topic_filter, topic):
                continue
            came = inquiry.came.get(topic)
            lacks = self._ledger.emptied.get(topic, 0) < known if came is None else came < known
            if lacks:
                what = f"{inquiry.at}{topic}: came {came}, known {known}, newest {self._ledger.newest[topic]}"
                raise Violation(f"{self.client_id}: {what}")

    def _ended(self, last_words: str) -> None:
        self._progress.set()
        self._conduct.complain(Violation(f"{self.client_id}: the broker ended the connection: {last_words}"))
