"""A real broker whose users come from elsewhere: the service and the options of the operator's page, and tokens."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError

import jwt
import pytest

from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.certificates import CLIENT, Authority
from tests.docs.pages import ROOT, blocks
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port, unmeasured

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "operator" / "identity-sources.md"
SECRET = "a secret of thirty-two bytes or more"


class User(RawClient):
    """Connects with User Name and Password."""

    def __init__(self, port: int, username: str | None, password: bytes | None, version: int = 5) -> None:
        self.credentials = (username, password)
        self.code = -1
        super().__init__(port, f"client-of-{username}", version)

    def greet(self, connect: p.Connect) -> None:
        import attrs

        username, password = self.credentials
        self.send(attrs.evolve(connect, username=username, password=password))
        connack = next(self.packets())
        assert isinstance(connack, p.Connack)
        self.code = connack.reason_code


def code(broker: BrokerProcess, username: str | None, password: bytes | None, version: int = 5) -> int:
    """Return the code that a login is answered with."""
    user = User(broker.port, username, password, version)
    user.close()
    return user.code


@pytest.fixture
def service() -> Iterator[int]:
    """Run the service of the operator's page; return its port."""
    (program,) = (block.text for block in blocks(PAGE) if block.language == "python")
    port = lasting_port()
    process = subprocess.Popen(
        [sys.executable, "-c", program.replace("8080", str(port))], stderr=subprocess.DEVNULL, env=unmeasured()
    )
    until = time.monotonic() + PATIENCE
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", b'{"username": "", "password": ""}')
            urllib.request.urlopen(request).close()
            break
        except URLError:
            assert time.monotonic() < until
            time.sleep(0.05)
    yield port
    process.kill()
    process.wait()


def configured(tmp_path: Path, text: str) -> str:
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    return str(path)


def test_the_service_of_the_page_decides(service: int, broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    text = next(block.text for block in blocks(PAGE) if 'type = "http"' in block.text)
    text = text.replace("8080", str(service)).replace("tcp:1883", "tcp:0")
    broker = broker_in("--config", configured(tmp_path, text), listen=False).start()
    assert code(broker, "alice", b"secret") == 0
    assert code(broker, "alice", b"secret", 4) == 0
    for username, password in (("alice", b"wrong"), ("bob", b"secret"), ('alice","password":"secret', b"x")):
        assert code(broker, username, password) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
        assert code(broker, username, password, 4) == 4
    assert code(broker, "bob", None) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    broker.stop()


def test_a_service_that_is_away_admits_nobody(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    text = f'[authentication.it]\ntype = "http"\nurl = "http://127.0.0.1:{lasting_port()}/"\n'
    text += '[listeners.default]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
    broker = broker_in("--config", configured(tmp_path, text), listen=False).start()
    assert code(broker, "alice", b"secret") == ReasonCode.SERVER_UNAVAILABLE
    assert code(broker, "alice", b"secret", 4) == 3
    broker.stop()


def test_a_token_admits_until_it_expires(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """The Will is published then, and the client is told why."""
    import attrs

    (tmp_path / "token-secret").write_text(SECRET)
    (tmp_path / "token-secret").chmod(0o600)
    text = '[authentication.it]\ntype = "jwt"\nsecret = "file:token-secret"\n'
    text += '[listeners.default]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
    broker = broker_in("--config", configured(tmp_path, text), listen=False).start()

    def token(**claims: object) -> bytes:
        return jwt.encode(claims, SECRET, "HS256").encode()

    watcher = User(broker.port, None, token(sub="watcher", exp=time.time() + 600))
    watcher.send(p.Subscribe(1, (p.SubscriptionRequest("wills/#", 0),)))
    assert isinstance(next(watcher.packets()), p.Suback)

    class Mortal(User):
        def greet(self, connect: p.Connect) -> None:
            super().greet(attrs.evolve(connect, will=p.Will("wills/alice", b"gone")))

    alice = Mortal(broker.port, "any", token(sub="alice", exp=time.time() + 1.5))
    assert alice.code == 0
    ended = next(alice.packets())
    assert isinstance(ended, p.Disconnect)
    assert ended.reason_code == ReasonCode.NOT_AUTHORIZED
    will = next(watcher.packets())
    assert isinstance(will, p.Publish)
    assert will.topic == "wills/alice"
    for wrong in (token(sub="alice", exp=time.time() - 1), token(sub="alice"), token(sub="a/b", exp=9e9)):
        assert code(broker, "alice", wrong) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert code(broker, "alice", b"no token") == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    _, log = broker.stop()
    assert SECRET not in log
    assert json.dumps("eyJ")[1:-1] not in log


def test_a_client_is_the_one_in_its_certificate(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Another User Name is denied; so is a client without a certificate, unless it has something else to show."""
    authority = Authority()
    authority.write(tmp_path, "ca")
    authority.issue("localhost", ["localhost"]).write(tmp_path, "server")
    authority.issue("sensor-7", usage=CLIENT).write(tmp_path, "sensor")
    authority.issue("a/b", usage=CLIENT).write(tmp_path, "levels")
    text = """
[authentication.devices]
type = "certificate"
[listeners.default]
endpoint = "tcp:0:interface=127.0.0.1"
tls = { certificate = "server.pem", key = "server.key", client_ca = "ca.pem", client = "optional" }
"""
    broker = broker_in("--config", configured(tmp_path, text), listen=False).start()

    class Device(User):
        def __init__(self, stem: str, username: str | None, version: int = 5) -> None:
            self.stem = stem
            super().__init__(broker.port, username, None, version)

        def greet(self, connect: p.Connect) -> None:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            if self.stem:
                context.load_cert_chain(tmp_path / f"{self.stem}.pem", tmp_path / f"{self.stem}.key")
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            super().greet(connect)

    for version, denied in ((5, ReasonCode.BAD_USER_NAME_OR_PASSWORD), (4, 4)):
        assert Device("sensor", None, version).code == 0
        assert Device("sensor", "sensor-7", version).code == 0
        assert Device("sensor", "admin", version).code == denied
        assert Device("levels", None, version).code == denied
        assert Device("", "sensor-7", version).code == denied
    broker.stop()
