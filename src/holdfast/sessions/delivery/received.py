"""QoS 2 messages from the Client that it has not released with PUBREL yet [MQTT5-4.3.3].

| the identifier is | PUBLISH with QoS 2 | PUBREL |
|---|---|---|
| unknown | published; PUBREC | PUBCOMP, in MQTT 5 with Packet Identifier not found (0x92) |
| noted here | not published again; PUBREC | forgotten; PUBCOMP |

The identifiers of QoS 1 messages are not noted, so a PUBREL for one of them is a PUBREL for an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.sessions.state.interfaces import ISessionRecord
from holdfast.tickets import COMMITTED, CommitTicket


class ReceivedIdentifiers:
    """The Packet Identifiers of received QoS 2 messages. Each change is stored in the Session's record too."""

    __slots__ = ("_record", "_times")

    def __init__(self, record: ISessionRecord) -> None:
        self._record = record
        self._times: dict[int, int] = {}  # when each message came, in milliseconds since the epoch

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._times

    def __iter__(self) -> Iterator[int]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def note(self, packet_identifier: int, now: int) -> CommitTicket:
        """Note a new message. PUBREC may be sent once the ticket is settled."""
        self._times[packet_identifier] = now
        return self._record.received(packet_identifier, now, True)

    def note_again(self, packet_identifier: int) -> CommitTicket:
        """Note that a known message came again. The first commit may still be under way."""
        return self._record.received(packet_identifier, self._times[packet_identifier], False)

    def forget(self, packet_identifier: int) -> CommitTicket:
        """Forget a message that was released or refused."""
        if self._times.pop(packet_identifier, None) is None:
            return COMMITTED
        return self._record.released(packet_identifier)

    def forget_before(self, before: int) -> int:
        """Forget the messages that came before this time (milliseconds since the epoch). Return their number."""
        old = [packet_identifier for packet_identifier, at in self._times.items() if at < before]
        for packet_identifier in old:
            self.forget(packet_identifier)
        return len(old)

    def clock_moved(self, step: int, now: int) -> None:
        """Let the messages have come later by ``step`` (milliseconds), but not after ``now``: the clock has jumped."""
        if self._times:
            self._times = {packet_identifier: min(at + step, now) for packet_identifier, at in self._times.items()}

    def restore(self, times: Mapping[int, int]) -> None:
        """Take over the messages that an earlier process has stored."""
        self._times.update(times)
