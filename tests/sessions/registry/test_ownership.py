"""A Session belongs to the user that has proven its name. Nobody else resumes it, and nobody else disturbs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.identity.interfaces import (
    Answer,
    Credentials,
    Denied,
    IAuthenticator,
    IAuthorizer,
    Principal,
    UnrestrictedAuthorizer,
)
from holdfast.sessions.registry import Access, names_ignored, owners_only
from holdfast.wire import ConnectReturnCode, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker

VERSIONS = pytest.mark.parametrize("version", [4, 5])
#: guests and other users, by the options of their CONNECT
STRANGERS = pytest.mark.parametrize("stranger", [None, "bob"])
ALICE, GUEST = "alice", None
PROOF = b"proof"


@implementer(IAuthenticator)
class Judge:
    """Admits users with their proof, and guests. Answers later while ``slow``."""

    def __init__(self) -> None:
        self.slow = False
        self.waiting: list[Callable[[], None]] = []

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        answer: Answer = Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the proof is wrong")
        if credentials.username is None or credentials.password == PROOF:
            answer = Principal(credentials.client_id, credentials.username)
        if not self.slow:
            return answer
        later: Deferred[Answer] = Deferred()
        self.waiting.append(lambda: later.callback(answer))
        return later


@pytest.fixture
def judging() -> MemoryBroker:
    """Return a broker that authenticates its Clients."""
    return MemoryBroker(authenticator=Judge(), ownership=owners_only)


def came(broker: MemoryBroker, who: str | None, version: int, client_id: str = "c", **connect: Any) -> Client:
    """Let a user or a guest (None) send CONNECT. Its Session lasts."""
    client = Client(broker, version)
    connect.setdefault("clean", False)
    if version == 5:
        connect.setdefault("properties", Properties(session_expiry_interval=600))
    if who is not None:
        connect |= {"username": who, "password": PROOF}
    client.connect(client_id, **connect)
    return client


def refused(client: Client) -> bool:
    """Tell whether CONNECT is refused because of the Client Identifier."""
    assert client.connack is not None
    expected: int = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    if client.version < 5:
        expected = ConnectReturnCode.IDENTIFIER_REJECTED
    return client.connack.reason_code == expected and client.network.closed


def present(client: Client) -> bool:
    """Tell whether CONNECT is accepted, and Session Present."""
    assert client.connack is not None
    assert client.connack.reason_code == 0
    return client.connack.session_present


@VERSIONS
@STRANGERS
@pytest.mark.parametrize("clean", [False, True])
def test_a_stranger_is_refused_and_disturbs_nobody(
    judging: MemoryBroker, version: int, stranger: str | None, clean: bool
) -> None:
    """Not the connection, not the Session, not its queue. The stranger's Will is neither stored nor published."""
    watcher = judging.client("watcher")
    watcher.subscribe("will/#")
    alice = came(judging, ALICE, version, will=p.Will("will/alice", b""))
    alice.subscribe("t", qos=1)
    intruder = came(judging, stranger, version, clean=clean, will=p.Will("will/stranger", b""))
    assert refused(intruder)
    intruder.drop()
    assert not alice.network.closed
    watcher.publish("t", b"live", 1)
    assert alice.messages() == [("t", b"live", 1, False)]
    alice.send(p.Disconnect())
    watcher.publish("t", b"queued", 1)
    assert refused(came(judging, stranger, version, clean=clean))
    assert watcher.messages() == []
    assert judging.counters.connections_refused == 2
    assert judging.counters.takeovers == 0
    back = came(judging, ALICE, version)
    assert present(back)
    judging.settle()
    (queued,) = [packet for packet in back.backlog if isinstance(packet, p.Publish)]
    assert queued.payload == b"queued"


@VERSIONS
def test_a_session_without_expiry_is_not_taken_over_either(judging: MemoryBroker, version: int) -> None:
    """Its owner is connected. Once it is gone, the Client Identifier is free."""
    alice = came(judging, ALICE, version, clean=True, properties=Properties())
    assert refused(came(judging, "bob", version, clean=True))
    assert not alice.network.closed
    alice.drop()
    assert not present(came(judging, "bob", version, clean=True))
    assert refused(came(judging, ALICE, version, clean=True))


@VERSIONS
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_a_user_replaces_the_session_of_a_guest(
    judging: MemoryBroker, version: int, clean: bool, connected: bool
) -> None:
    """A stranger may have filled it. Session Present is 0 without Clean Start too. The guest's Will is published."""
    watcher = judging.client("watcher")
    watcher.subscribe("will/#")
    guest = came(judging, GUEST, version, will=p.Will("will/guest", b"gone"))
    guest.subscribe("t", qos=1)
    if not connected:
        guest.drop()
        watcher.publish("t", b"planted", 1)
    alice = came(judging, ALICE, version, clean=clean)
    assert not present(alice)
    assert guest.network.closed
    assert judging.counters.takeovers == int(connected)
    watcher.publish("t", b"planted", 1)
    assert alice.messages() == []
    assert watcher.messages() == [("will/guest", b"gone", 0, False)]
    assert judging.counters.holdings.shared_subscriptions == 0
    assert refused(came(judging, GUEST, version))
    alice.drop()
    assert present(came(judging, ALICE, version)) == (version == 5 or not clean)


def test_a_replaced_member_hands_over_its_shared_messages(judging: MemoryBroker) -> None:
    """As at every other end of a Session."""
    guest = came(judging, GUEST, 5)
    guest.subscribe("$share/g/t", qos=1)
    guest.drop()
    judging.client("publisher").publish("t", b"job", 1)
    member = came(judging, "bob", 5, "member")
    member.subscribe("$share/g/t", qos=1)
    assert not present(came(judging, ALICE, 5))
    assert member.messages() == [("t", b"job", 1, False)]


@VERSIONS
@pytest.mark.parametrize("who", [GUEST, ALICE])
def test_its_owner_resumes_a_session(judging: MemoryBroker, version: int, who: str | None) -> None:
    """Guests share their Sessions, as all Clients do without authentication."""
    first = came(judging, who, version)
    again = came(judging, who, version)
    assert present(again)
    assert first.network.closed
    again.drop()
    assert present(came(judging, who, version))


@VERSIONS
def test_an_expired_session_has_no_owner(judging: MemoryBroker, version: int) -> None:
    """Its Client Identifier is free then, and not before."""
    judging.limits = judging.limits.__class__(session_expiry_interval=600)
    came(judging, ALICE, version).drop()
    judging.advance(599)
    assert refused(came(judging, "bob", version))
    judging.advance(2)
    assert not present(came(judging, "bob", version))


def test_a_refused_connect_does_not_touch_a_will_that_waits(judging: MemoryBroker) -> None:
    """The Will Delay goes on, and only its own Client cancels it."""
    watcher = judging.client("watcher")
    watcher.subscribe("will/#")
    delayed = p.Will("will/alice", b"gone", properties=Properties(will_delay_interval=60))
    came(judging, ALICE, 5, will=delayed).drop()
    for stranger in (None, "bob"):
        assert refused(came(judging, stranger, 5, clean=True, will=p.Will("will/stranger", b"")))
    judging.advance(59)
    assert watcher.messages() == []
    judging.advance(2)
    assert watcher.messages() == [("will/alice", b"gone", 0, False)]


def test_of_two_connects_at_once_the_first_decided_owns_the_session() -> None:
    """Both are sent before any is decided; the other one is refused when it is decided."""
    judge = Judge()
    broker = MemoryBroker(authenticator=judge, ownership=owners_only)
    judge.slow = True
    clients = []
    for who in (ALICE, "bob"):
        client = Client(broker, 5)
        client.send(p.Connect("c", 5, username=who, password=PROOF))
        clients.append(client)
    for decide in reversed(judge.waiting):
        decide()
        broker.settle()
    codes = [client.got(p.Connack)[0].reason_code for client in clients]
    assert codes == [ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, ReasonCode.SUCCESS]
    assert not clients[1].network.closed


@VERSIONS
def test_wrong_credentials_never_make_a_guest(judging: MemoryBroker, version: int) -> None:
    """Not even where guests are admitted."""
    client = Client(judging, version)
    client.connect("c", username=ALICE, password=b"wrong")
    assert client.connack is not None
    expected: int = ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert client.connack.reason_code == (expected if version == 5 else ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD)
    assert judging.registry.session_count == 0


@VERSIONS
def test_an_assigned_client_identifier_belongs_to_its_user(judging: MemoryBroker, version: int) -> None:
    """A stranger that learns it cannot use it."""
    alice = came(judging, ALICE, version, "", clean=True)
    (name,) = [session.client_id for session in judging.registry]
    assert refused(came(judging, "bob", version, name))
    assert not alice.network.closed


@VERSIONS
def test_without_authentication_names_are_ignored(version: int) -> None:
    """Any Client resumes any Session by its Client Identifier, as the standard has it."""
    broker = MemoryBroker()
    came(broker, ALICE, version).drop()
    for who in ("bob", None, ALICE):
        client = came(broker, who, version)
        assert present(client)
        client.drop()


@implementer(IAuthorizer)
class Slow(UnrestrictedAuthorizer):
    """Decides about Wills later."""

    def __init__(self) -> None:
        self.asked: list[Deferred[bool]] = []

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> Any:
        self.asked.append(Deferred())
        return self.asked[-1]


def test_a_session_that_got_an_owner_while_the_will_was_judged_is_not_taken_over() -> None:
    """The owner counts at the moment when the Client would get the Session."""
    authorizer = Slow()
    broker = MemoryBroker(authenticator=Judge(), ownership=owners_only, authorizer=authorizer)
    guest = came(broker, GUEST, 5, will=p.Will("w", b""))
    alice = came(broker, ALICE, 5)
    authorizer.asked[0].callback(True)
    broker.settle()
    (connack,) = guest.got(p.Connack)
    assert connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert not alice.network.closed


# --- restarts


@pytest.fixture
def stored(tmp_path: Path) -> RestartableBroker:
    """Return a broker that authenticates its Clients, and can be killed."""
    return RestartableBroker(tmp_path / "holdfast.db", authenticator=Judge(), ownership=owners_only)


@VERSIONS
@pytest.mark.parametrize("connected", [True, False])
def test_a_session_keeps_its_owner_through_any_number_of_kills(
    stored: RestartableBroker, version: int, connected: bool
) -> None:
    """Also while its Client does not come back, and was connected when the broker was killed."""
    alice = came(stored, ALICE, version)
    alice.subscribe("t", qos=1)
    if not connected:
        alice.drop()
    broker = stored
    for _ in range(3):
        broker = broker.restart()
        for stranger in (None, "bob"):
            assert refused(came(broker, stranger, version, clean=True))
    assert present(came(broker, ALICE, version))


def test_a_session_keeps_its_listener_through_any_number_of_kills(tmp_path: Path) -> None:
    """Its zone's limits depend on it."""
    broker = RestartableBroker(tmp_path / "holdfast.db")
    came(broker, None, 5)
    for _ in range(3):
        broker = broker.restart()
        broker.commit()
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as connection:
        assert connection.execute("SELECT listener FROM sessions").fetchall() == [("test",)]


def test_sessions_from_before_authentication_belong_to_the_name_that_was_given(tmp_path: Path) -> None:
    """The first user who proves it resumes the Session. Guests and others are refused."""
    path = tmp_path / "holdfast.db"
    broker = RestartableBroker(path)
    came(broker, ALICE, 4, "named").drop()
    came(broker, None, 4, "nameless").drop()
    broker.commit()
    broker.kill()
    broker = RestartableBroker(path, authenticator=Judge(), ownership=owners_only)
    assert refused(came(broker, None, 4, "named"))
    assert refused(came(broker, "bob", 4, "named"))
    assert present(came(broker, ALICE, 4, "named"))
    assert not present(came(broker, ALICE, 4, "nameless"))


def test_without_authentication_the_sessions_of_users_are_open_again(tmp_path: Path) -> None:
    """Whoever switches it off gives up the protection."""
    path = tmp_path / "holdfast.db"
    broker = RestartableBroker(path, authenticator=Judge(), ownership=owners_only)
    came(broker, ALICE, 4).drop()
    broker.commit()
    broker.kill()
    assert present(came(RestartableBroker(path), None, 4))


@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("back", [ALICE, "bob", None])
def test_a_will_found_at_start_is_discarded_for_its_own_client_only(
    stored: RestartableBroker, lasting: bool, back: str | None
) -> None:
    """A stranger gets the free Client Identifier of a Client without a Session. The Will is then published at once."""
    expiry = Properties(session_expiry_interval=600 if lasting else 0)
    came(stored, ALICE, 5, clean=True, properties=expiry, will=p.Will("will/alice", b"gone", 1))
    broker = stored.restart()
    watcher = broker.client("watcher")
    watcher.subscribe("will/#")
    client = came(broker, back, 5, will=p.Will("will/new", b"gone", 1))
    watched = [topic for topic, *_ in watcher.messages()]
    if back == ALICE:
        assert present(client) == lasting
        assert watched == []
    elif lasting:
        assert refused(client)
        assert watched == []
    else:
        assert not present(client)
        assert watched == ["will/alice"]
        client.drop()
        broker.advance(120)
        assert [topic for topic, *_ in watcher.messages()] == ["will/new"]


@pytest.mark.parametrize(
    ("owner", "newcomer", "expected"),
    [
        (None, None, Access.RESUMES),
        (None, "alice", Access.REPLACES),
        ("", "alice", Access.REPLACES),
        ("", None, Access.RESUMES),
        ("alice", "alice", Access.RESUMES),
        ("alice", "bob", Access.REFUSED),
        ("alice", None, Access.REFUSED),
    ],
)
def test_the_owner_decides(owner: str | None, newcomer: str | None, expected: Access) -> None:
    """Without authentication every Client resumes every Session."""
    principals = Principal("c", owner), Principal("c", newcomer)
    assert owners_only(*principals) is expected
    assert names_ignored(*principals) is Access.RESUMES


def test_a_user_replaces_the_session_and_the_will_of_a_guest_after_a_restart(stored: RestartableBroker) -> None:
    """The guest cannot come back to its Session, so its Will is published."""
    came(stored, GUEST, 5, will=p.Will("will/guest", b"gone", 1))
    broker = stored.restart()
    watcher = broker.client("watcher")
    watcher.subscribe("will/#")
    assert not present(came(broker, ALICE, 5))
    assert [topic for topic, *_ in watcher.messages()] == ["will/guest"]
    broker = broker.restart()
    assert present(came(broker, ALICE, 5))
    broker.advance(120)
    assert broker.rows("wills") == 0
