"""The states of a message in flight: every event in every state, compared with the tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import (
    OVER,
    PROTOCOL_ERRORS,
    QOS_1,
    QOS_2,
    Inflight,
    InflightEvent,
    InflightState,
    Window,
)
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.state import UNRECORDED, MemorySessionStates
from holdfast.wire import ProtocolError
from tests.doubles import MemoryBroker

_IDENTIFIER = 7


class OneMessage:
    """One message in flight, in a given state."""

    def __init__(self, qos: int, state: InflightState, version: int = 5) -> None:
        self.client = MemoryBroker().client("c", version)
        self.messages = InflightMessages(
            window=Window(10, 1 << 20),
            deliveries=Deliveries(UNRECORDED, MemorySessionStates()),
            counters=Counters(),
            now=lambda: 0,
            on_room=lambda: None,
            on_sent=lambda: None,
            on_lost=lambda: None,
        )
        self.messages.resume(self.client.connection)
        self.commit = CommitTicket()
        self.entry = Inflight(b"\x34\x07\0\x01t\0\x07\0x", qos, 5)
        waits = state in (InflightState.AWAITS_COMMIT, InflightState.UNSENT)
        self.messages.send(self.client.connection, _IDENTIFIER, self.entry, self.commit if waits else COMMITTED)
        if state is InflightState.RELEASED:
            self.messages.received_by_client(_IDENTIFIER)
        if state is InflightState.UNSENT:
            self.happens(InflightEvent.COMMIT_ENDED_LATE)
            self.messages._link = self.client.connection  # so that the Client can send acknowledgements
        assert self.entry.state is state

    def happens(self, event: InflightEvent) -> None:
        match event:
            case InflightEvent.COMMIT_ENDED:
                self._end_commit()
            case InflightEvent.COMMIT_ENDED_LATE:
                self.messages.detach()
                self._end_commit()
            case InflightEvent.RECONNECTED:
                self.messages.detach()
                self.messages.resume(self.client.connection)
                self.messages.send_again(self.client.connection, 100)
            case InflightEvent.PUBACK:
                self.messages.acknowledged(_IDENTIFIER, 1)
            case InflightEvent.PUBCOMP:
                self.messages.acknowledged(_IDENTIFIER, 2)
            case InflightEvent.PUBREC:
                self.messages.received_by_client(_IDENTIFIER)
            case InflightEvent.PUBREC_REFUSES:
                self.messages.refused(_IDENTIFIER)

    def _end_commit(self) -> None:
        if not self.commit.settled:
            self.commit.settle()


_QOS_1 = [(1, InflightState.SENT, event) for event in InflightEvent]
_QOS_2 = [(2, state, event) for state in InflightState if state is not OVER for event in InflightEvent]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("qos", "state", "event"), _QOS_1 + _QOS_2)
def test_every_event_changes_a_message_as_the_tables_say(
    qos: int, state: InflightState, event: InflightEvent, version: int
) -> None:
    message = OneMessage(qos, state, version)
    refused = False
    try:
        message.happens(event)
    except ProtocolError:
        refused = True
    assert refused == (version >= PROTOCOL_ERRORS.get((qos, state, event), 6))
    assert message.entry.state is (QOS_1 if qos == 1 else QOS_2).get((state, event), state)
    assert (not message.messages.entries) == (message.entry.state is OVER)
    repeated = _IDENTIFIER in message.messages.to_resend and message.entry.state is InflightState.UNSENT
    assert bool(message.messages.unsent()) == (message.entry.state is InflightState.AWAITS_COMMIT or repeated)


def test_unsent_messages_are_found_without_the_others() -> None:
    """Each replay asks for them when it begins, so the cost must not rise with the messages in flight."""

    class Unwalked(dict[int, Inflight]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError

        values = items = __iter__  # type: ignore[assignment]

    message = OneMessage(2, InflightState.AWAITS_COMMIT)
    message.messages.entries = Unwalked(message.messages.entries)
    assert message.messages.unsent() == [message.entry]
    message.happens(InflightEvent.COMMIT_ENDED)
    assert message.messages.unsent() == []


def test_no_protocol_error_has_a_next_state() -> None:
    for qos, state, event in PROTOCOL_ERRORS:
        assert (state, event) not in (QOS_1 if qos == 1 else QOS_2)


def test_the_tables_lead_from_every_state_to_the_end() -> None:
    for table in (QOS_1, QOS_2):
        for state in {state for state, _ in table}:
            reached = {state}
            while more := {after for (before, _), after in table.items() if before in reached} - reached:
                reached |= more
            assert OVER in reached


def test_a_failed_commit_discards_a_message_that_was_never_stored() -> None:
    """Its publisher is told so, and sends it again."""
    message = OneMessage(2, InflightState.AWAITS_COMMIT)
    message.commit.settle(StorageFailure(FailureKind.FULL, "full"))
    assert message.entry.state is OVER
