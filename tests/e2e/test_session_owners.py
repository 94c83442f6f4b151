"""Sessions of users on a real broker: nobody else resumes or disturbs them, also after kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.wire import ConnectReturnCode, ReasonCode
from holdfast.wire import packets as p
from tests.e2e.logins import Login, Refused, set_user
from tests.e2e.raw import RawClient
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

CONFIGURATION = """
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
allow_anonymous = true
"""
AUTHENTICATION = """
[authentication]
scram_file = "users.scram"
"""
CLIENT_ID = "dashboard"


class Guest(RawClient):
    """Connects without a proof of its name, and notes the answer."""

    def greet(self, connect: p.Connect) -> None:
        """Send CONNECT with a User Name and a Password that nobody judges."""
        self.send(p.Connect(connect.client_id, self.version, False, username="alice", password=b"guess"))
        connack = next(self.packets())
        assert isinstance(connack, p.Connack)
        self.connack = connack


def resumed(port: int) -> Login:
    """Return alice, back in her Session."""
    alice = Login(port, "alice", "pencil", CLIENT_ID, expiry=600)
    assert alice.session_present
    return alice


def strangers_are_refused(port: int) -> None:
    """A guest of each version and another user."""
    for version in (4, 5):
        code: int = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID if version == 5 else ConnectReturnCode.IDENTIFIER_REJECTED
        assert Guest(port, CLIENT_ID, version).connack.reason_code == code
    with pytest.raises(Refused) as caught:
        Login(port, "bob", "eraser", CLIENT_ID)
    assert caught.value.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def payload(client: RawClient) -> bytes:
    """Return the payload of the next message."""
    return next(packet.payload for packet in client.packets() if isinstance(packet, p.Publish))


def test_a_session_belongs_to_its_user_through_kills(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """Its messages wait for it, connected or away, through several kills in a row."""
    file = tmp_path / "holdfast.toml"
    file.write_text(CONFIGURATION + AUTHENTICATION)
    set_user(tmp_path, "alice", "pencil")
    set_user(tmp_path, "bob", "eraser")
    broker = broker_in("--config", str(file), *storage, listen=False).start()
    alice = Login(broker.port, "alice", "pencil", CLIENT_ID, expiry=600)
    alice.send(p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    assert isinstance(next(alice.packets()), p.Suback)
    strangers_are_refused(broker.port)
    alice.send(p.Pingreq())
    assert isinstance(next(alice.packets()), p.Pingresp)
    for _ in range(2):  # she is connected at the first kill, and does not come back before the second one
        broker.kill()
        broker.start()
        strangers_are_refused(broker.port)
    publisher = RawClient(broker.port, "publisher")
    publisher.send(p.Publish("t", b"for alice", 1, packet_identifier=1))
    assert isinstance(next(publisher.packets()), p.Puback)
    broker.kill()
    broker.start()
    strangers_are_refused(broker.port)
    assert payload(resumed(broker.port)) == b"for alice"


def test_a_session_from_before_authentication_waits_for_the_user_it_named(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """Until its first proof, guests and other users are refused."""
    file = tmp_path / "holdfast.toml"
    file.write_text(CONFIGURATION)
    set_user(tmp_path, "alice", "pencil")
    set_user(tmp_path, "bob", "eraser")
    broker = broker_in("--config", str(file), *storage, listen=False).start()
    before = Guest(broker.port, CLIENT_ID)
    assert before.connack.reason_code == 0
    before.send(p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    assert isinstance(next(before.packets()), p.Suback)
    broker.kill()
    file.write_text(CONFIGURATION + AUTHENTICATION)
    broker.start()
    strangers_are_refused(broker.port)
    alice = resumed(broker.port)
    alice.send(p.Publish("t", b"mine", 1, packet_identifier=1))
    assert payload(alice) == b"mine"
