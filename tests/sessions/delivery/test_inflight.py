"""The states of a message in flight: every event in every state, compared with the tables."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import OVER, QOS_1, QOS_2, Inflight, InflightEvent, InflightState
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.window import Window
from holdfast.sessions.state.memory import UNRECORDED, MemorySessionStates
from holdfast.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure
from tests.doubles import MemoryBroker

_IDENTIFIER = 7


class OneMessage:
    """One message in flight, in a given state."""

    def __init__(self, qos: int, state: InflightState) -> None:
        client = MemoryBroker().client("c")
        self.messages = InflightMessages(
            window=Window(10),
            deliveries=Deliveries(UNRECORDED, MemorySessionStates()),
            counters=Counters(),
            now=lambda: 0,
            on_room=lambda: None,
            on_sent=lambda: None,
        )
        self.messages.resume(client.connection)
        self.commit = CommitTicket()
        self.entry = Inflight(b"\x34\x06\0\x01t\0\x07x", qos, 4)
        after = self.commit if state is InflightState.AWAITS_COMMIT else COMMITTED
        self.messages.send(client.connection, _IDENTIFIER, self.entry, after)
        if state is InflightState.RELEASED:
            self.messages.received_by_client(_IDENTIFIER)
        assert self.entry.state is state

    def happens(self, event: InflightEvent) -> None:
        match event:
            case InflightEvent.COMMIT_ENDED:
                self.commit.settle()
            case InflightEvent.PUBACK:
                self.messages.acknowledged(_IDENTIFIER, 1)
            case InflightEvent.PUBCOMP:
                self.messages.acknowledged(_IDENTIFIER, 2)
            case InflightEvent.PUBREC:
                self.messages.received_by_client(_IDENTIFIER)
            case InflightEvent.PUBREC_REFUSES:
                self.messages.refused(_IDENTIFIER)


@pytest.mark.parametrize(("state", "event"), list(product([InflightState.SENT], InflightEvent)))
def test_every_event_changes_a_qos_1_message_as_the_table_says(state: InflightState, event: InflightEvent) -> None:
    message = OneMessage(1, state)
    message.happens(event)
    assert message.entry.state is QOS_1.get((state, event), state)
    assert (not message.messages.entries) == (message.entry.state is OVER)


@pytest.mark.parametrize(
    ("state", "event"),
    list(product([InflightState.AWAITS_COMMIT, InflightState.SENT, InflightState.RELEASED], InflightEvent)),
)
def test_every_event_changes_a_qos_2_message_as_the_table_says(state: InflightState, event: InflightEvent) -> None:
    message = OneMessage(2, state)
    message.happens(event)
    assert message.entry.state is QOS_2.get((state, event), state)
    assert (not message.messages.entries) == (message.entry.state is OVER)


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
