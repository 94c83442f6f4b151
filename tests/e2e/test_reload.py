"""Reloads of a whole broker, with clients that are connected meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.certificates import Authority
from tests.e2e.raw import RawClient
from tests.e2e.test_operator_history import asked
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
LISTENER = '[listeners.door]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
USERS = '[authentication.users]\ntype = "file"\npath = "users"\nmemory = "8MB"\npasses = 1\n'
RULES = '[authorization]\nsources = ["rules"]\n[authorization.rules]\ntype = "file"\npath = "rules.toml"\n'


class Place:
    """A folder with a configuration, and the broker that runs by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = BrokerProcess(
            folder, "--config", str(folder / "holdfast.toml"), listen=False, program=HOLDFAST_RUN
        )

    def configure(self, text: str) -> None:
        (self.folder / "holdfast.toml").write_text(text)

    def rules(self, *topics: str) -> None:
        """Let everyone do everything with these topics."""
        actions = '["publish", "retain", "subscribe", "receive"]'
        self.write("rules.toml", f"[[rule]]\naction = {actions}\ntopics = {json.dumps(topics)}\nallow = true\n")

    def write(self, name: str, text: str) -> None:
        file = self.folder / f"{name}.new"
        file.write_text(text)
        file.chmod(0o600)
        file.rename(self.folder / name)

    def passwd(self, *words: str, typed: str = "") -> None:
        command = [HOLDFAST, "passwd", words[0], str(self.folder / "users"), *words[1:]]
        subprocess.run(command, input=typed, text=True, check=True, capture_output=True)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [HOLDFAST, "reload", "--data-dir", str(self.folder / "data"), *words]
        return subprocess.run(command, text=True, capture_output=True, check=False)

    def reload(self) -> str:
        """Reload, and return what the command prints. It must succeed."""
        done = self.command()
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def hang_up(self, awaited: str) -> None:
        """Reload by SIGHUP, and wait for a line of the log."""
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.wait_for(awaited)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.broker.end()


def told(client: RawClient) -> int:
    """Return the Reason Code of the DISCONNECT that a client gets next."""
    packet = next(each for each in client.packets() if not isinstance(each, p.Publish))
    assert isinstance(packet, p.Disconnect)
    return packet.reason_code


def status_of(place: Place, path: str) -> int:
    """Return the status of a call of the retainer's API."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place.folder / "data" / "control.sock"))
        connection.sendall(f"GET /api/v5/mqtt/retainer{path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return int(answer.split(b" ", 2)[1])


def answers(client: RawClient) -> bool:
    client.send(p.Pingreq())
    return isinstance(next(client.packets()), p.Pingresp)


class Login(RawClient):
    """Connects with a User Name and a Password, and notes the answer."""

    code = -1

    def __init__(self, port: int, user: str, password: str) -> None:
        self._credentials = (user, password.encode())
        super().__init__(port, f"of-{user}", 5)

    def greet(self, connect: p.Connect) -> None:
        """Send CONNECT, and note the Reason Code."""
        username, password = self._credentials
        self.send(attrs.evolve(connect, username=username, password=password))
        answer = next(self.packets())
        assert isinstance(answer, p.Connack)
        self.code = answer.reason_code


def test_the_command_tells_what_has_changed_and_what_needs_a_restart(place: Place) -> None:
    place.configure(f'{LISTENER}[audit]\nfile = "audit.log"\n')
    broker = place.broker.start()
    client = RawClient(broker.port, "c", 5)
    assert place.reload() == "nothing has changed\n"
    more = '[node]\nid = 9\n[audit]\nfile = "audit.log"\n[retainer]\nmax_payload_size = "1KB"\ndelivery_rate = "9/s"\n'
    more += "client_quota.max_retained_messages = 1\n"
    place.configure(f"{LISTENER}max_connections = 1\n{more}")
    assert place.reload().splitlines() == [
        'listeners.door.max_connections: "infinity" -> 1 (at a reload, for clients that connect from then on)',
        'retainer.max_payload_size: "max_packet_size" -> 1024',
        'retainer.delivery_rate: "infinity" -> "9/s"',
        "retainer.client_quota.max_retained_messages: 0 -> 1",
        "node.id: 1 -> 9 needs a restart of the broker",
    ]
    assert answers(client)
    codes = []
    for number, (topic, size) in enumerate((("t", 1025), ("t", 1024), ("u", 1)), 1):
        client.send(p.Publish(topic, b"x" * size, 1, True, packet_identifier=number))
        answer = next(client.packets())
        assert isinstance(answer, p.Puback)
        codes.append(answer.reason_code & 0x80)
    assert codes == [0x80, 0, 0x80]
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as second:
        assert second.recv(1) == b""
    content = json.loads(place.command("--json").stdout)
    assert (content["changed"], [each["key"] for each in content["restart"]]) == ([], ["node.id"])
    assert broker.stop() == (0, "")
    (line, *_) = [each for each in (place.folder / "audit.log").read_text().splitlines() if "retainer" in each]
    assert json.loads(line)["path"] == "/api/v5/reload"
    assert json.loads(line)["operator"]
    assert place.command().returncode == 1


def test_a_history_is_turned_on_and_off_without_a_lost_connection(place: Place) -> None:
    """It has the messages retained before, and answers 409 until its baseline is complete."""
    place.configure(LISTENER)
    broker = place.broker.start()
    client = RawClient(broker.port, "c", 5)
    client.send(*(p.Publish(f"t/{number}", b"1", 1, True, packet_identifier=number) for number in range(1, 10)))
    assert all(isinstance(next(client.packets()), p.Puback) for _ in range(9))
    assert status_of(place, "/messages?topic=%23&at=0s") == 400
    place.configure(f"{LISTENER}[retainer.history]\nenable = true\n")
    assert place.reload() == "retainer.history.enable: false -> true\n"
    deadline = time.monotonic() + 60
    while (status := status_of(place, "/messages?topic=%23&at=0s")) == 409:
        assert time.monotonic() < deadline
    assert status == 200
    client.send(p.Publish("t/0", b"2", 1, True, packet_identifier=10))
    assert isinstance(next(client.packets()), p.Puback)
    broker.kill()
    broker.start()
    found = asked(place.folder, "/messages?topic=%23&at=0s")["data"]
    assert [each["topic"] for each in found] == [f"t/{number}" for number in range(10)]
    place.configure(LISTENER)
    assert place.reload() == "retainer.history.enable: true -> false\n"
    assert status_of(place, "/messages?topic=%23&at=0s") == 400
    assert broker.stop() == (0, "")


def test_a_bad_file_changes_nothing(place: Place) -> None:
    place.rules("a/#")
    place.configure(LISTENER + RULES)
    broker = place.broker.start()
    client = RawClient(broker.port, "c", 5)
    place.write("rules.toml", "[[rule]]\naction = ['fly']\n")
    place.configure(f"{LISTENER}max_connections = 1\n{RULES}")
    done = place.command()
    assert done.returncode == 3
    assert "rules.toml:2" in done.stderr
    assert done.stderr.endswith("nothing was changed\n")
    client.send(p.Publish("a/b", b"", 1, packet_identifier=1), p.Publish("b", b"", 1, packet_identifier=2))
    codes = [next(client.packets()) for _ in range(2)]
    assert [getattr(each, "reason_code", None) for each in codes] == [
        ReasonCode.NO_MATCHING_SUBSCRIBERS, ReasonCode.NOT_AUTHORIZED
    ]  # fmt: skip
    RawClient(broker.port, "second")
    place.hang_up("reload: nothing was changed")
    assert answers(client)


def test_rules_that_change_under_load_take_effect_without_a_lost_connection(place: Place) -> None:
    place.rules("a/#", "b/#")
    place.configure(LISTENER + RULES)
    broker = place.broker.start()
    publisher, stays, goes = (RawClient(broker.port, name, 5) for name in ("publisher", "stays", "goes"))
    for client, topic in ((stays, "a/#"), (goes, "b/#")):
        client.send(p.Subscribe(1, (p.SubscriptionRequest(topic, 1),)))
        next(client.packets())
    both, ends = threading.Event(), threading.Event()
    refused: list[str] = []

    def load() -> None:
        number = 0
        while not ends.is_set():
            number = number % 60_000 + 1
            publisher.send(p.Publish(f"{'ab'[number % 2]}/x", b"", 1, packet_identifier=number))
            answer = next(publisher.packets())
            if getattr(answer, "reason_code", 0) == ReasonCode.NOT_AUTHORIZED:
                refused.append("b" if number % 2 else "a")
            if number == 2:
                both.set()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert both.wait(PATIENCE)
        place.rules("a/#")
        place.hang_up("reload: .*rules.toml: read again")
        assert told(goes) == ReasonCode.NOT_AUTHORIZED
    finally:
        ends.set()
        thread.join()
    assert set(refused) <= {"b"}
    publisher.send(p.Publish("b/x", b"", 1, packet_identifier=65000))
    assert getattr(next(publisher.packets()), "reason_code", 0) == ReasonCode.NOT_AUTHORIZED
    assert next(stays.packets()) is not None


def test_authentication_that_is_added_ends_guests_and_users_who_go(place: Place) -> None:
    place.configure(LISTENER)
    broker = place.broker.start()
    guest = RawClient(broker.port, "guest", 5)
    place.passwd("add", "alice", typed="wonderland\n")
    place.passwd("add", "bob", typed="builder\n")
    place.configure(LISTENER + USERS)
    assert "1 identities ended" in place.reload()
    assert told(guest) == ReasonCode.NOT_AUTHORIZED
    alice, bob = Login(broker.port, "alice", "wonderland"), Login(broker.port, "bob", "builder")
    assert (alice.code, bob.code) == (0, 0)
    assert Login(broker.port, "alice", "other").code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    place.write("others", (place.folder / "users").read_text().splitlines(keepends=True)[1])
    place.configure(LISTENER + USERS.replace('"users"', '"others"'))
    assert 'authentication.users.path: "users" -> "others"' in place.reload()
    assert told(alice) == ReasonCode.NOT_AUTHORIZED
    assert answers(bob)
    assert Login(broker.port, "alice", "wonderland").code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_listeners_are_added_and_removed(place: Place, tmp_path: Path) -> None:
    place.configure(LISTENER)
    broker = place.broker.start()
    client = RawClient(broker.port, "c", 5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place.configure(f'{LISTENER}[listeners.more]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n')
        done = place.command()
        assert done.returncode == 3
        assert "Address already in use" in done.stderr
    assert "listeners.more: added" in place.reload()
    assert answers(RawClient(port, "d", 5))
    last = RawClient(port, "e", 5)
    silent = socket.create_connection(("127.0.0.1", port), timeout=60)
    place.configure(LISTENER)
    assert "listeners.more: removed" in place.reload()
    assert told(last) == ReasonCode.SERVER_SHUTTING_DOWN
    with pytest.raises(ConnectionResetError):
        silent.recv(1)
    with pytest.raises(ConnectionRefusedError):
        RawClient(port)
    assert answers(client)


def test_a_certificate_is_exchanged_without_a_lost_connection(place: Place) -> None:
    authority = Authority()
    authority.issue("localhost", ["localhost"]).write(place.folder, "server")
    tls = 'tls = { certificate = "server.pem", key = "server.key" }\n'
    place.configure(LISTENER + tls)
    port = place.broker.start().port
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def opened() -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60))

    first = opened()
    before = first.getpeercert(binary_form=True)
    first.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c")
    assert first.recv(4) == b"\x20\x02\x00\x00"
    authority.issue("localhost", ["localhost"]).write(place.folder, "server")
    assert "server.pem: read again" in place.reload()
    with opened() as second:
        assert second.getpeercert(binary_form=True) != before
    first.sendall(b"\xc0\x00")
    assert first.recv(2) == b"\xd0\x00"
    first.close()
