"""Mirrors kept by tokens, and the states that a topic may have: a mirror is exact if it has one of these at its marker.

How it works. Each topic has one writer, so its states have an order::

    states      0: nothing   1: b"1"   2: nothing   3: b"3"
    SUBSCRIBE   the acknowledgement of 1 has come
    marker      3 has been sent
    allowed     1, 2 and 3; then 3, once its acknowledgement has come before a SUBSCRIBE

A killed process may or may not have stored what it had not acknowledged, so nothing else is needed for kills.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient

TOPICS = 40
BURST = 60
#: every so many messages one clears its topic
CLEARED = 5
_PREFIX = "mirrored/"
_END = "$replay/end"
#: a time before everything
_EVER = "1970-01-01T00:00:00Z"


class States:
    """The states of all topics in their order, None for no message; and the last state of each that is stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, list[bytes | None]] = {f"{_PREFIX}{number}": [None] for number in range(TOPICS)}
        self._stored = dict.fromkeys(self._states, 0)

    @property
    def topics(self) -> list[str]:
        """All topics."""
        return list(self._states)

    def sent(self, topic: str, payload: bytes) -> int:
        """Note a message that is about to be sent. Return the number of the state."""
        with self._lock:
            self._states[topic].append(payload or None)
            return len(self._states[topic]) - 1

    def acknowledged(self, topic: str, number: int) -> None:
        """Note that a state is stored."""
        with self._lock:
            self._stored[topic] = max(number, self._stored[topic])

    def known(self) -> dict[str, int]:
        """Return the last stored state of each topic."""
        with self._lock:
            return dict(self._stored)

    def present(self) -> dict[str, bytes | None]:
        """Return the present states. Nothing may be under way."""
        return {topic: self._states[topic][number] for topic, number in self.known().items()}

    def restored(self, present: dict[str, bytes | None]) -> None:
        """Note that these are the states again, and that nothing else can be there."""
        for topic, payload in present.items():
            self.acknowledged(topic, self.sent(topic, payload or b""))

    def wrong(self, copy: dict[str, bytes], known: dict[str, int]) -> list[str]:
        """Return in words where a copy is wrong, whose SUBSCRIBE was sent when these states were ``known``."""
        with self._lock:
            return [
                f"{topic}: {copy.get(topic)!r}, allowed {states[known[topic] :]}"
                for topic, states in self._states.items()
                if copy.get(topic) not in states[known[topic] :]
            ] + [f"{topic}: nobody has set it" for topic in copy.keys() - self._states.keys()]


class Writer:
    """Sets and clears its own topics with QoS 1, many at once, on one connection after another."""

    def __init__(self, name: str, topics: list[str], states: States, chance: random.Random) -> None:
        self._name = name
        self._topics = topics
        self._states = states
        self._chance = chance
        self._number = 0

    def burst(self, port: int) -> None:
        """Publish, and wait for the acknowledgements; less if the broker ends."""
        with contextlib.suppress(OSError, StopIteration):
            client = RawClient(port, self._name)
            under_way: dict[int, tuple[str, int]] = {}
            packets: list[p.Packet] = []
            for identifier in range(1, BURST + 1):
                self._number += 1
                topic = self._chance.choice(self._topics)
                payload = b"" if self._number % CLEARED == 0 else f"{self._number} of {self._name}".encode()
                under_way[identifier] = topic, self._states.sent(topic, payload)
                packets.append(p.Publish(topic, payload, 1, True, False, identifier))
            client.send(*packets)
            for packet in client.packets():
                if isinstance(packet, p.Puback):
                    self._states.acknowledged(*under_way.pop(packet.packet_identifier))
                    if not under_way:
                        break
            client.close()


class Mirror:
    """A client that keeps a copy and one string of state. ``answers`` counts its replays, by "full" and "delta"."""

    def __init__(self, name: str, states: States) -> None:
        self._name = name
        self._states = states
        self._copy: dict[str, bytes] = {}
        self._token = _EVER
        self.answers = {"full": 0, "delta": 0}

    def update(self, port: int, cut_after: int | None = None, beyond: Callable[[], None] | None = None) -> str:
        """Connect, take what has changed, and check the copy at the marker. Return "full" or "delta", "" after a cut.

        The connection is cut after so many messages. ``beyond`` runs between marker and goodbye, with live messages.
        """
        asked = (("holdfast", "?"),)
        client = RawClient.connected(port, p.Connect(self._name, 5, True, properties=Properties(user_properties=asked)))
        try:
            return self._updated(client, cut_after, beyond)
        finally:
            client.close()

    def _updated(self, client: RawClient, cut_after: int | None, beyond: Callable[[], None] | None) -> str:
        known = self._states.known()
        since = Properties(user_properties=(("holdfast-replay-since", self._token),))
        wanted = p.SubscriptionRequest(f"{_PREFIX}#", 1, retain_as_published=True)
        client.send(p.Subscribe(1, (p.SubscriptionRequest(_END, 0), wanted), since))
        came: set[str] = set()
        answer = ""
        for packet in client.packets():
            if isinstance(packet, p.Publish) and packet.topic == _END:
                answer = self._take_marker(packet, came, known)
                if beyond is None:
                    return answer
                beyond()
                client.send(p.Pingreq())
            elif isinstance(packet, p.Publish):
                self._take(client, packet)
                came.add(packet.topic)
                if not answer and len(came) == cut_after:
                    return ""
            elif isinstance(packet, p.Pingresp):
                return answer
        raise AssertionError(f"{self._name}: the broker ended the connection")

    def _take(self, client: RawClient, packet: p.Publish) -> None:
        self._copy[packet.topic] = packet.payload
        if not packet.payload:
            del self._copy[packet.topic]
        if packet.qos:
            client.send(p.Puback(packet.packet_identifier))

    def _take_marker(self, packet: p.Publish, came: set[str], known: dict[str, int]) -> str:
        marker = json.loads(packet.payload)
        if marker["filter"] != f"{_PREFIX}#":
            raise AssertionError(f"{self._name}: another marker: {marker}")
        assert marker["complete"], marker
        answer: str = marker["since"]
        if answer == "full":
            self._copy = {topic: payload for topic, payload in self._copy.items() if topic in came}
        wrong = self._states.wrong(self._copy, known)
        assert not wrong, f"{self._name} after {answer}, token {self._token}:\n" + "\n".join(wrong)
        self._token = marker["token"]
        self.answers[answer] += 1
        return answer
