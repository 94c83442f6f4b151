"""Sessions of one user or guest, and the bytes that wait in them, are limited."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.sessions.accounts import Accounts
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.sessions.registry import names_ignored, owners_only
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

STAYS = Properties(session_expiry_interval=1000)
TWO = Limits(max_sessions=2)


def broker_with(limits: Limits, names_proven: bool = True) -> MemoryBroker:
    return MemoryBroker(limits=limits, accounts=Accounts(names_proven), ownership=owners_only)


def code(broker: MemoryBroker, client_id: str, username: str | None = "alice", **connect: object) -> int | None:
    """Connect, and return the code of CONNACK."""
    fields = {"version": 5, "properties": STAYS, "clean": False, **connect}
    connack = broker.client(client_id, username=username, **fields).connack  # type: ignore[arg-type]
    return None if connack is None else int(connack.reason_code)


@pytest.mark.parametrize(("version", "refused"), [(3, 3), (4, 3), (5, 0x97)])
def test_one_session_more_is_refused_and_another_user_is_not(version: int, refused: int) -> None:
    broker = broker_with(TWO)
    assert code(broker, "a") == code(broker, "b") == 0
    properties = STAYS if version == 5 else NO_PROPERTIES
    assert code(broker, "c", version=version, properties=properties) == refused
    assert code(broker, "d", "bob") == 0
    assert broker.counters.connections_over_limits == 1
    assert broker.registry.session_count == 3


def test_sessions_are_resumed_and_replaced_at_the_limit() -> None:
    """Also by a connection that takes over, and stored ones too."""
    broker = broker_with(TWO)
    first = broker.client("a", 5, username="alice", properties=STAYS)
    assert code(broker, "b", clean=False) == 0
    first.drop()
    assert code(broker, "a") == 0
    assert code(broker, "a", clean=True) == 0
    assert code(broker, "b", clean=True) == 0
    assert code(broker, "c") == ReasonCode.QUOTA_EXCEEDED


def test_the_end_of_a_session_makes_room() -> None:
    broker = broker_with(evolve(TWO, max_sessions=1))
    client = broker.client("a", 5, username="alice")  # ends with its connection
    assert code(broker, "b") == ReasonCode.QUOTA_EXCEEDED
    client.send(p.Disconnect())
    assert code(broker, "b", properties=Properties(session_expiry_interval=5)) == 0
    broker.registry._links["b"].close(ReasonCode.ADMINISTRATIVE_ACTION, "test")
    assert code(broker, "c") == ReasonCode.QUOTA_EXCEEDED
    broker.advance(6)
    assert code(broker, "c") == 0


def test_a_refused_newcomer_changes_nothing() -> None:
    """Neither the Session that it would replace nor the Will of that one."""
    broker = broker_with(Limits(max_sessions=1))
    guest = broker.client("g", 5, properties=STAYS)
    assert code(broker, "a") == 0
    assert code(broker, "g") == ReasonCode.QUOTA_EXCEEDED  # alice would replace the guest's Session by a second one
    assert not guest.network.closed


def test_all_guests_of_a_listener_have_one_total() -> None:
    broker = broker_with(Limits(guests_max_sessions=2))
    assert code(broker, "a", None) == code(broker, "b", None) == 0
    assert code(broker, "c", None) == ReasonCode.QUOTA_EXCEEDED
    assert code(broker, "c", "alice") == 0
    assert code(broker, "b", None, clean=True) == 0


def test_names_that_nobody_has_proven_are_guests() -> None:
    broker = MemoryBroker(limits=Limits(guests_max_sessions=1), accounts=Accounts(False))
    assert code(broker, "a", "alice") == 0
    assert code(broker, "b", "bob") == ReasonCode.QUOTA_EXCEEDED


def test_restored_sessions_count(tmp_path: Path) -> None:
    accounts = Accounts(True)
    broker = RestartableBroker(fresh_file(tmp_path), limits=TWO, accounts=accounts, ownership=owners_only)
    assert code(broker, "a") == code(broker, "b") == 0
    broker._options["accounts"] = Accounts(True)
    broker.commit()
    broker = broker.restart(after=1)
    assert code(broker, "c") == ReasonCode.QUOTA_EXCEEDED
    assert code(broker, "b") == 0
    broker.kill()


# --- bytes


def test_queues_of_all_sessions_share_the_bytes_of_their_user() -> None:
    """The oldest message of the Session that gets one is dropped; another user loses nothing."""
    broker = broker_with(Limits(max_waiting_bytes=2000))
    for client_id, user in (("a", "alice"), ("b", "alice"), ("c", "bob")):
        client = broker.client(client_id, 5, username=user, properties=STAYS)
        client.subscribe("t", qos=1)
        client.drop()
    publisher = broker.client("p", 5, username="carol")
    for _ in range(3):
        publisher.publish("t", b"x" * 50, 1)
    waiting = {session.client_id: len(session.queue) for session in broker.registry}
    assert (waiting["a"] + waiting["b"], waiting["c"]) == (3, 3)
    assert broker.counters.messages_dropped_queue_full == 3


def test_reject_tells_the_publisher_that_the_bytes_of_the_user_are_used_up() -> None:
    broker = broker_with(Limits(max_waiting_bytes=1302, mqueue_full=WhenFull.REJECT))
    client = broker.client("a", 5, username="alice", properties=STAYS)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = broker.client("p", 5, username="carol")
    for _ in range(3):
        publisher.publish("t", b"x" * 50, 1)
    assert [one.reason_code for one in publisher.got(p.Puback)][-1] == ReasonCode.QUOTA_EXCEEDED


def test_a_will_without_room_refuses_the_connection() -> None:
    broker = broker_with(Limits(max_waiting_bytes=1000))
    assert code(broker, "a", will=p.Will("w", b"x" * 300, 1)) == 0
    assert code(broker, "a", will=p.Will("w", b"x" * 301, 1), clean=False) == 0  # in place of the first
    assert code(broker, "b", will=p.Will("w", b"x" * 300, 1)) == ReasonCode.QUOTA_EXCEEDED
    assert code(broker, "b", "bob", will=p.Will("w", b"x" * 300, 1)) == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["connect", "clean", "will", "drop", "bye", "wait", "publish"]),
        st.integers(0, 3),
        st.sampled_from([None, "alice", "bob"]),
    ),
    max_size=40,
)


@given(steps, st.booleans())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_accounts_equal_a_recount(steps: list[tuple[str, int, str | None]], names_proven: bool) -> None:
    """After any order of connections, take-overs, ends, expiries, Wills and queued messages."""
    accounts = Accounts(names_proven)
    broker = MemoryBroker(
        limits=Limits(max_sessions=2, guests_max_sessions=3, max_waiting_bytes=3000), accounts=accounts,
        ownership=owners_only if names_proven else names_ignored,
    )  # fmt: skip
    publisher = broker.client("p", 5, username="carol")
    clients: dict[int, Client] = {}
    everyone: list[Client] = []
    for action, number, username in steps:
        client = clients.get(number)
        if action in ("connect", "clean", "will"):
            will = p.Will("w", b"x" * 100, 1, False, Properties(will_delay_interval=3)) if action == "will" else None
            properties = Properties(session_expiry_interval=5)
            client = clients[number] = broker.client(
                f"c{number}", 5, username=username, clean=action == "clean", will=will, properties=properties
            )
            everyone.append(client)
            if not client.network.closed:
                client.subscribe("t", qos=1)
        elif action == "drop" and client is not None and not client.network.closed:
            client.drop()
        elif action == "bye" and client is not None and not client.network.closed:
            client.send(p.Disconnect())
        elif action == "wait":
            broker.advance(2)
        elif action == "publish":
            publisher.publish("t", b"x" * 200, 1)
        recount(broker, accounts, names_proven)
    broker.advance(100)
    for client in everyone:
        if not client.network.closed:
            client.send(p.Disconnect())
    broker.advance(100)
    assert len(accounts) == 1  # the publisher's


def recount(broker: MemoryBroker, accounts: Accounts, names_proven: bool) -> None:
    """Compare the accounts with the Sessions and the Wills."""
    sessions = list(broker.registry)
    wills = accounts._wills
    assert wills.keys() == broker.wills._kept.keys()
    for session in sessions:
        payer = accounts._payer(session.principal)
        same = [one for one in sessions if accounts._payer(one.principal) == payer]
        held = sum(one.queue.bytes for one in same) + sum(size for whose, size in wills.values() if whose == payer)
        assert accounts.usage(session.principal) == (len(same), held)
    guests = [one for one in sessions if not (names_proven and one.principal.username)]
    assert accounts.guests("test") == len(guests) <= 3
