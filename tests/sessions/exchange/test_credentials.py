"""Refused credentials: the same answer for all users, and no effect on Sessions, connections and messages.

The classes are those of CVE-2026-32696 (null credentials), CVE-2018-12551 (a user without a password), and Clean Start
or the Will of a refused CONNECT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast.sessions.registry import owners_only
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.identity.passwords.doubles import Passwords

VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])


class Guarded(MemoryBroker):
    """A broker with the password file of alice."""

    def __init__(self, path: Path, guests: bool = False) -> None:
        self.passwords = Passwords(path / "passwords", Clock(), alice="wonderland")
        super().__init__(authenticator=self.passwords.chains(guests=guests), ownership=owners_only)
        self.passwords.clock = self.clock


@pytest.fixture
def broker(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def code(client: Client) -> int:
    """Return the code in CONNACK; the connection is closed if it is a refusal."""
    assert client.connack is not None
    assert client.network.closed is (client.connack.reason_code != 0)
    return int(client.connack.reason_code)


def login(broker: Guarded, version: int, username: str | None, password: bytes | None, **connect: Any) -> Client:
    return broker.client("c", version, username=username, password=password, **connect)


WRONG = [
    ("alice", None),
    ("alice", b""),
    ("alice", b"other"),
    ("alice", b"wonderland\0"),
    ("", b""),
    ("", None),
    ("", b"wonderland"),
    ("mallory", None),
    ("mallory", b""),
    ("mallory", b"wonderland"),
]


@VERSIONS
@pytest.mark.parametrize("guests", [False, True])
@pytest.mark.parametrize(("username", "password"), WRONG)
def test_wrong_credentials_have_one_answer_and_are_no_guests(
    tmp_path: Path, version: int, username: str, password: bytes | None, guests: bool
) -> None:
    client = login(Guarded(tmp_path, guests), version, username, password)
    assert code(client) == (ReasonCode.BAD_USER_NAME_OR_PASSWORD if version == 5 else 4)
    assert client.connack is not None
    assert client.connack.properties.reason_string == ("the connection is not allowed" if version == 5 else None)


def test_in_mqtt_5_a_password_may_come_without_a_user_name(broker: Guarded) -> None:
    assert code(login(broker, 5, None, b"wonderland")) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("version", [3, 4])
def test_in_mqtt_3_a_password_without_a_user_name_breaks_the_protocol(broker: Guarded, version: int) -> None:
    client = Client(broker, version)
    client.raw(b"\x10" + bytes((23, 0, 4)) + b"MQTT" + bytes((4, 0x42, 0, 0, 0, 1)) + b"c" + b"\0\x08password"[:10])
    assert client.network.closed
    assert broker.passwords.hashing.count == 0


@VERSIONS
@pytest.mark.parametrize("character", [b"\0", b"\n", b"\x7f"])
def test_a_user_name_with_nul_or_control_characters_is_refused(broker: Guarded, version: int, character: bytes) -> None:
    """[MQTT5-1.5.4-2]."""
    client = Client(broker, version)
    connect = encode(p.Connect("c", version, username="aliXce", password=b"wonderland"), version)
    client.raw(connect.replace(b"aliXce", b"ali" + character + b"ce"))
    assert client.network.closed
    assert all(isinstance(one, p.Connack) and one.reason_code != 0 for one in client.packets())
    assert broker.passwords.hashing.count == 0


@VERSIONS
def test_without_credentials_a_listener_without_guests_refuses(broker: Guarded, version: int) -> None:
    assert code(login(broker, version, None, None)) == (ReasonCode.NOT_AUTHORIZED if version == 5 else 5)


@VERSIONS
def test_with_too_many_logins_a_client_is_refused_as_busy(broker: Guarded, version: int) -> None:
    broker.passwords.hashing.busy = True
    assert code(login(broker, version, "alice", b"wonderland")) == (ReasonCode.SERVER_BUSY if version == 5 else 3)


@VERSIONS
@pytest.mark.parametrize(("username", "password"), [("alice", b"other"), ("mallory", b"x"), (None, None), ("", None)])
def test_a_refused_connect_has_no_effect(
    broker: Guarded, version: int, username: str | None, password: bytes | None
) -> None:
    """Neither its Clean Start nor its Will: not at once, and not later. The owner stays connected."""
    lasting = Properties(session_expiry_interval=600) if version == 5 else Properties()
    owner = login(broker, version, "alice", b"wonderland", clean=False, properties=lasting)
    owner.subscribe("will", "t", qos=1)
    sessions = broker.registry.session_count
    will = p.Will("will", b"boo", 1, retain=True)
    assert code(login(broker, version, username, password, clean=True, will=will)) != 0
    broker.advance(700)
    assert not owner.network.closed
    assert broker.registry.session_count == sessions
    owner.subscribe("will", qos=1)  # which would replay what the Will had retained
    assert owner.messages() == []
    owner.drop()
    back = login(broker, version, "alice", b"wonderland", clean=False, properties=lasting)
    assert back.connack is not None
    assert back.connack.session_present or version == 3  # MQTT 3.1 does not tell it


def test_a_client_that_leaves_before_the_answer_is_not_admitted(broker: Guarded) -> None:
    broker.passwords.hashing.slow = True
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, username="alice", password=b"wonderland", will=p.Will("will", b"boo")))
    client.drop()
    broker.passwords.hashing.catch_up()
    broker.settle()
    assert broker.registry.session_count == 0
