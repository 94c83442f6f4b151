"""An unexpected error ends the connection that it concerns, with a line in the log, and disturbs no other client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket
from holdfast.identity.interfaces import IAuthorizer, Principal
from holdfast.sessions.connection.connection import Phase
from holdfast.sessions.connection.packet_order import ANSWERS_PATIENCE, MOST_ANSWERS, PACKETS_OF_A_TURN
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import UNRECORDED
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker

PINGREQ = b"\xc0\x00"


class Unexpected(Exception):
    """A mistake of the broker's own."""


def fails(*_: Any, **__: Any) -> Any:
    raise Unexpected


@implementer(IAuthorizer)
class Late(Filtering):
    """Answers later."""

    def __init__(self) -> None:
        self.later: list[Deferred[bool]] = []

    def _ask(self) -> Deferred[bool]:
        answer: Deferred[bool] = Deferred()
        self.later.append(answer)
        return answer

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        return self._ask() if topic == "late" else True

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        return self._ask() if message.topic == "late/delivery" else True


class Guarded:
    """A broker with a client that something unexpected happens to, and a bystander."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.authorizer = Late()
        self.broker = MemoryBroker(authorizer=self.authorizer, limits=Limits(max_inflight=10))
        self.bystander = self.broker.client("bystander")
        self.victim = self.broker.client("v", 5, keep_alive=100, properties=Properties(session_expiry_interval=1000))

    @property
    def connection(self) -> Any:
        return self.victim.connection

    def fail_at(self, kind: type[p.Packet]) -> None:
        self.connection._order.actions[kind] = fails

    def answer(self) -> None:
        for answer in self.authorizer.later:
            answer.callback(True)
        self.broker.settle()


def an_action(guarded: Guarded) -> None:
    guarded.fail_at(p.Pingreq)
    guarded.victim.raw(PINGREQ)


def a_later_portion_of_packets(guarded: Guarded) -> None:
    guarded.fail_at(p.Disconnect)
    guarded.victim.raw(PINGREQ * PACKETS_OF_A_TURN + encode(p.Disconnect(), 5))


def a_packet_behind_an_awaited_answer(guarded: Guarded) -> None:
    guarded.fail_at(p.Pingreq)
    guarded.victim.raw(encode(p.Publish("late", b""), 5) + PINGREQ)
    assert not guarded.victim.network.closed
    guarded.answer()


def a_packet_behind_the_pressure_of_the_store(guarded: Guarded) -> None:
    guarded.fail_at(p.Pingreq)
    guarded.broker.pressure.change(True)
    guarded.broker.pressure.charge(guarded.connection)
    guarded.broker.pressure.charge(guarded.bystander.connection)
    guarded.victim.raw(PINGREQ)
    guarded.broker.pressure.change(False)
    guarded.broker.settle()


def reading_again(guarded: Guarded) -> None:
    guarded.patch.setattr(guarded.victim.network, "resume", fails)
    guarded.connection.hold()
    guarded.victim.raw(encode(p.Publish("t", bytes(70_000)), 5))
    assert guarded.victim.network.paused
    guarded.connection.release()


def the_keep_alive(guarded: Guarded) -> None:
    guarded.patch.setattr(guarded.connection._order.__class__, "silence", fails)
    guarded.broker.advance(151)


def the_timer_of_unread_answers(guarded: Guarded) -> None:
    guarded.victim.network.blocked = True
    guarded.victim.raw(PINGREQ * (MOST_ANSWERS // 2 + 10))
    guarded.victim.raw(PINGREQ * (MOST_ANSWERS // 2 + 10))
    assert guarded.connection._unread._holding
    guarded.patch.setattr(guarded.victim.network, "unsent", fails)
    guarded.broker.advance(ANSWERS_PATIENCE + 1)


def writing(guarded: Guarded) -> None:
    guarded.patch.setattr(guarded.victim.network, "write", fails)
    guarded.victim.raw(PINGREQ)


def room_again(guarded: Guarded) -> None:
    guarded.victim.network.blocked = True
    guarded.victim.raw(PINGREQ)
    guarded.victim.network.blocked = False
    guarded.connection._outbox.on_room = fails
    guarded.connection.drained()


def an_answer_to_a_commit(guarded: Guarded) -> None:
    ticket, sent = CommitTicket(), cast("list[object]", [])
    answers = guarded.connection.acknowledgements
    guarded.patch.setattr(answers, "_send", fails)
    answers.send_when_committed(ticket, b"", fails)
    ticket.when_settled(sent.append)
    ticket.settle()
    assert sent == [None]


def a_message_that_awaited_its_commit(guarded: Guarded) -> None:
    ticket = CommitTicket()
    session = guarded.broker.registry._sessions["v"]
    guarded.victim.subscribe("t", qos=2)
    guarded.broker.router.route(ApplicationMessage("t", b"", 2), ticket)
    guarded.patch.setattr(type(session.inflight), "_send_late", fails)
    ticket.settle()


def an_authorized_delivery(guarded: Guarded) -> None:
    guarded.victim.subscribe("late/#", qos=1)
    guarded.bystander.publish("late/delivery", qos=1)
    guarded.patch.setattr(guarded.broker.registry._sessions["v"], "send", fails)
    guarded.answer()


def a_saved_position(guarded: Guarded) -> None:
    exchange = guarded.connection._client
    guarded.patch.setattr(exchange.replays.__class__, "save", lambda _: None)
    exchange.replays._saving = guarded.broker.clock.callLater(1, exchange.replays._save_and_go_on)
    with guarded.patch.context() as patched:
        patched.setattr(exchange.replays.__class__, "_save_later", fails)
        guarded.broker.advance(2)


LATE_CALLS = [
    an_action,
    a_later_portion_of_packets,
    a_packet_behind_an_awaited_answer,
    a_packet_behind_the_pressure_of_the_store,
    reading_again,
    the_keep_alive,
    the_timer_of_unread_answers,
    writing,
    room_again,
    an_answer_to_a_commit,
    a_message_that_awaited_its_commit,
    an_authorized_delivery,
    a_saved_position,
]


@pytest.mark.parametrize("late_call", LATE_CALLS, ids=lambda call: call.__name__)
def test_an_unexpected_error_ends_its_connection_only(
    late_call: Callable[[Guarded], None], monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    """The Session stays, and the Client can come back to it."""
    guarded = Guarded(monkeypatch)
    guarded.bystander.packets()
    late_call(guarded)
    guarded.broker.settle()
    monkeypatch.undo()
    assert [event["log_failure"].type for event in logged_failures] == [Unexpected]
    logged_failures.clear()
    assert guarded.victim.network.closed
    assert guarded.connection._phase is Phase.CLOSED
    if late_call not in (writing, the_timer_of_unread_answers, room_again):  # its last packets are lost
        (disconnect,) = guarded.victim.got(p.Disconnect)
        assert disconnect.reason_code == ReasonCode.UNSPECIFIED_ERROR
    assert not guarded.bystander.network.closed
    guarded.bystander.raw(PINGREQ)
    assert guarded.bystander.got(p.Pingresp)
    assert guarded.broker.registry.connection_count == 1
    back = guarded.broker.client("v", 5, clean=False)
    assert back.connack is not None
    assert back.connack.session_present


def test_an_error_before_connect_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    broker = MemoryBroker(limits=Limits(idle_timeout=15))
    client = Client(broker)
    monkeypatch.setattr(type(client.connection.client_log), "info", fails)
    broker.advance(16)
    assert client.network.closed
    assert [event["log_failure"].type for event in logged_failures] == [Unexpected]
    logged_failures.clear()


def test_an_error_while_a_session_is_resumed_after_its_commit_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    broker = MemoryBroker()
    ticket = CommitTicket()
    connect = broker.registry.connect

    def connect_later(*arguments: Any, **options: Any) -> Any:
        session, present, _ = connect(*arguments, **options)
        monkeypatch.setattr(session, "attach", fails)
        return session, present, ticket

    monkeypatch.setattr(broker.registry, "connect", connect_later)
    client = Client(broker, 5)
    client.send(p.Connect("c", 5))
    assert not client.network.closed
    ticket.settle()
    broker.settle()
    assert client.network.closed
    assert broker.registry.connection_count == 0
    assert [event["log_failure"].type for event in logged_failures] == [Unexpected]
    logged_failures.clear()


def test_an_error_at_the_end_of_a_connection_leaves_neither_it_nor_its_session_open(
    monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5)
    session = broker.registry._sessions["c"]
    assert session.record is UNRECORDED
    monkeypatch.setattr(session, "detach", fails)
    client.send(p.Disconnect())
    assert client.network.closed
    assert (broker.registry.connection_count, broker.registry.session_count) == (0, 0)
    assert [event["log_failure"].type for event in logged_failures] == [Unexpected]
    logged_failures.clear()


def test_every_callback_of_a_commit_is_called(logged_failures: list[LogEvent]) -> None:
    ticket, called = CommitTicket(), cast("list[object]", [])
    ticket.when_settled(fails)
    ticket.when_settled(called.append)
    with pytest.raises(Unexpected):
        ticket.settle()
    assert called == [None]
