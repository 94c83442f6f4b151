"""TLS with real clients on real sockets, and new certificates while clients work."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.certificates import CLIENT, Authority
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Start = Callable[..., BrokerProcess]


class Place:
    """A folder with certificates, and the brokers that are started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.authority.write(folder, "ca")
        self.authority.issue("localhost", ["localhost"]).write(folder, "server")
        self.clients = Authority("Clients CA")
        self.clients.write(folder, "clients-ca")
        self.clients.issue("sensor", usage=CLIENT).write(folder, "client")
        self.brokers: list[BrokerProcess] = []

    def start(self, tls: str = "", endpoint: str = "tcp:0:interface=127.0.0.1", more: str = "") -> BrokerProcess:
        config = self.folder / "holdfast.toml"
        config.write_text(
            f'[listeners.tls]\nendpoint = "{endpoint}"\nallow_anonymous = true\n{more}'
            f'tls = {{ certificate = "server.pem", key = "server.key"{tls} }}\n'
        )
        broker = BrokerProcess(self.folder, "--config", str(config), listen=False, program=HOLDFAST_RUN)
        self.brokers.append(broker)
        return broker.start()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for broker in made.brokers:
        broker.end()


def publish(place: Place, port: int, version: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Publish with mosquitto_pub over TLS."""
    command = ["mosquitto_pub", "-h", "localhost", "-p", str(port), "-V", version, "--cafile", "ca.pem"]
    return subprocess.run(
        [*command, "-t", "a/b", "-m", "x", "-q", "1", *options],
        cwd=place.folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def paho(place: Place, version: int = 5, client_id: str = "") -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion(version))
    client.tls_set(ca_certs=str(place.folder / "ca.pem"))
    return client


@pytest.mark.parametrize(("mosquitto", "version"), [("mqttv311", 4), ("mqttv5", 5)])
def test_mosquitto_and_paho_connect(place: Place, mosquitto: str, version: int) -> None:
    broker = place.start()
    received = threading.Event()
    subscribed = threading.Event()
    client: Any = paho(place, version)
    client.on_message = lambda *_: received.set()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_connect = lambda *_: client.subscribe("a/#", 1)
    client.connect("localhost", broker.port)
    client.loop_start()
    assert subscribed.wait(PATIENCE)
    done = publish(place, broker.port, mosquitto)
    assert (done.returncode, done.stderr) == (0, "")
    assert received.wait(PATIENCE)
    client.disconnect()
    client.loop_stop()
    assert broker.stop() == (0, "")


def test_client_certificates_and_revocation(place: Place) -> None:
    revoked = place.clients.issue("thief", usage=CLIENT)
    revoked.write(place.folder, "revoked")
    (place.folder / "crl.pem").write_bytes(place.clients.revocations(revoked))
    broker = place.start(', client = "required", client_ca = "clients-ca.pem", crl = "crl.pem"')
    assert publish(place, broker.port, "mqttv5").returncode != 0
    assert publish(place, broker.port, "mqttv5", "--cert", "revoked.pem", "--key", "revoked.key").returncode != 0
    done = publish(place, broker.port, "mqttv5", "--cert", "client.pem", "--key", "client.key")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_header_of_a_proxy_comes_before_tls(place: Place) -> None:
    broker = place.start(endpoint="haproxy:tcp:0:interface=127.0.0.1")
    context = ssl.create_default_context(cafile=str(place.folder / "ca.pem"))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as plain:
        plain.sendall(b"PROXY TCP4 192.0.2.1 127.0.0.1 5555 8883\r\n")
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c")
            assert client.recv(4) == b"\x20\x02\0\0"


@pytest.mark.parametrize("first", [b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_without_tls_is_closed_and_the_log_tells_why(place: Place, first: bytes) -> None:
    broker = place.start()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as client:
        client.sendall(first)
        assert client.recv(100) == b""
    line = broker.wait_for("its TLS handshake failed")
    assert "Traceback" not in "\n".join(broker.lines)
    assert "from 127.0.0.1" in line


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda folder: (folder / "server.key").unlink(), "server.key"),
        (lambda folder: (folder / "server.key").write_bytes((folder / "client.key").read_bytes()), "is not the key"),
        (lambda folder: (folder / "server.pem").write_text("nothing"), "no certificate in PEM form"),
    ],
)
def test_a_broker_without_usable_files_does_not_start(
    place: Place, break_it: Callable[[Path], object], told: str
) -> None:
    break_it(place.folder)
    with pytest.raises(AssertionError, match="the broker ended") as ended:
        place.start()
    assert told in str(ended.value)
    assert "holdfast.toml:4: listeners.tls.tls." in str(ended.value)
    assert "Traceback" not in str(ended.value)


def test_a_unix_socket_is_for_the_owner_and_the_group_unless_its_endpoint_says_otherwise(tmp_path: Path) -> None:
    for options, mode in (("", 0o660), (":mode=600", 0o600)):
        path = tmp_path / f"mqtt{mode:o}.sock"
        broker = BrokerProcess(tmp_path, "--listen", f"unix:{path}{options}", listen=False, program=HOLDFAST_RUN)
        try:
            broker.start()
            assert stat.S_IMODE(os.stat(path).st_mode) == mode
        finally:
            broker.end()


class Rotation:
    """Clients that publish and clients that come and go, while the broker gets new certificates."""

    def __init__(self, place: Place, port: int) -> None:
        self.place = place
        self.port = port
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.acknowledged = 0
        self.connects = 0
        self.serials: set[str] = set()

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.place.folder / "ca.pem"))

    def stay(self) -> None:
        """Publish with QoS 1 through one connection, from the beginning to the end."""
        client = paho(self.place)
        client.on_disconnect = lambda *_: None if self.stop.is_set() else self.failures.append("disconnected")
        client.connect("localhost", self.port)
        client.loop_start()
        while not self.stop.is_set():
            message = client.publish("a/b", b"x" * 100, qos=1)
            message.wait_for_publish(PATIENCE)
            if not message.is_published():
                self.failures.append("not acknowledged")
                break
            self.acknowledged += 1
        self.stop.wait()
        client.disconnect()
        client.loop_stop()

    def come_and_go(self) -> None:
        """Connect again and again."""
        context = self._context()
        while not self.stop.is_set():
            try:
                with (
                    socket.create_connection(("localhost", self.port), timeout=PATIENCE) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as client,
                ):
                    client.sendall(b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0")
                    if client.recv(4) != b"\x20\x02\0\0":
                        self.failures.append("no CONNACK")
                    self.serials.add(str((client.getpeercert() or {})["serialNumber"]))
                    self.connects += 1
            except OSError as error:
                self.failures.append(repr(error))


def rotate(place: Place, rotations: int) -> None:
    """Renew the certificate some times under load; a bad file comes in between."""
    broker = place.start()
    load = Rotation(place, broker.port)
    threads = [threading.Thread(target=each) for each in (load.stay, load.stay, load.come_and_go, load.come_and_go)]
    for thread in threads:
        thread.start()
    try:
        for number in range(rotations):
            if number % 2:
                (place.folder / "server.pem").write_text("no certificate")
                broker.wait_for("the certificates stay as they are")
            renewed = place.authority.issue("localhost", ["localhost"])
            renewed.write(place.folder, "server")
            serial = f"{renewed.certificate.serial_number:X}"
            deadline = time.monotonic() + 2 * PATIENCE
            while serial not in {each.lstrip("0") for each in load.serials.copy()}:
                assert time.monotonic() < deadline, f"no new certificate: {load.failures}"
                time.sleep(0.05)
        assert not load.failures
        assert load.acknowledged > 10
        assert load.connects > 10
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()
    assert not load.failures
    assert broker.stop()[0] == 0


def test_a_certificate_is_renewed_under_load_and_no_connection_is_lost(place: Place) -> None:
    rotate(place, 1)


@pytest.mark.nightly
def test_certificates_are_renewed_again_and_again_under_load(place: Place) -> None:
    rotate(place, 6)


def test_websocket_over_tls(place: Place) -> None:
    broker = place.start(more='transport = "websocket"\n')
    context = ssl.create_default_context(cafile=str(place.folder / "ca.pem"))
    context.set_alpn_protocols(["http/1.1"])
    with (
        socket.create_connection(("localhost", broker.port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        assert client.selected_alpn_protocol() == "http/1.1"
        client.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
        connect = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c"
        client.sendall(bytes([0x82, 0x80 | len(connect), 0, 0, 0, 0]) + connect)
        assert client.recv(4096) == b"\x82\x04\x20\x02\0\0"
