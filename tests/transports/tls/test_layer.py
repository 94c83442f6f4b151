"""TLS of one connection in memory: handshakes, bytes, ends, and clients that speak no TLS."""

from __future__ import annotations

import gc
import ssl
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.identity.interfaces import Credentials, PeerCertificate, Principal
from holdfast.transports.protocol import CLOSING_TIME, MQTTServerFactory, OpenConnections
from holdfast.transports.tls import MOST_RECORDS, PIECE, turns_of_handshakes
from holdfast.transports.tls_files import KeyPair, TLSSettings
from holdfast.transports.tls_reloading import ListenerTLS, load
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.certificates import CLIENT, SERVER, Authority, Issued
from tests.doubles import MemoryBroker
from tests.logs import logged
from tests.transports.test_protocol import STRANGER, Door

CONNECT = encode(p.Connect("c"), 4)
CONNACK = b"\x20\x02\0\0"
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"


class Files:
    """The files of a listener, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.clients = Authority("Clients CA")
        self.pair = self.add("server", self.authority.issue("broker.example", ["broker.example", "localhost"]))
        self.client_ca = folder / "clients.pem"
        self.client_ca.write_bytes(self.clients.chain)
        self.client = self.add("client", self.clients.issue("sensor-1", ["sensor-1.example"], usage=CLIENT))

    def add(self, stem: str, issued: Issued) -> KeyPair:
        return KeyPair("", *issued.write(self.folder, stem))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


class TLSDoor(Door):
    """A listener with TLS whose transports are in memory."""

    def __init__(self, settings: TLSSettings, proxies: list[str] | None = None) -> None:
        super().__init__(proxies)
        self.settings = settings
        turns = turns_of_handshakes(self.broker.clock)
        self.tls = ListenerTLS("test", load(settings, time.time()), turns, time.time)
        self.factory = MQTTServerFactory(
            lambda network: self.broker.connect(network, self.broker.limits, "test"),
            OpenConnections(self.broker.clock), self.broker.clock, self.acceptance, lambda: [self.tls.new_layer()],
        )  # fmt: skip


class Client:
    """A TLS client in memory, of Python's own ssl module."""

    def __init__(self, door: Door, authority: Authority, **options: Any) -> None:
        context = options.pop("context", None) or ssl.create_default_context(cadata=authority.chain.decode())
        self.context = context
        name = options.pop("name", "broker.example")
        pair = options.pop("pair", None)
        protocols = options.pop("protocols", None)
        context.maximum_version = options.pop("maximum", ssl.TLSVersion.MAXIMUM_SUPPORTED)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        if protocols:
            context.set_alpn_protocols(protocols)
        if name is None:
            context.check_hostname = False
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = options.pop("session", None)
        self.ssl = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name, session=session)
        self.door = door
        self.protocol = door.accept(STRANGER)
        self.received = 0

    def exchange(self, data: bytes | None = None) -> None:
        """Give the broker all that waits, or these bytes, and take its answers."""
        data = self.outgoing.read() if data is None else data
        sent = self.door.send(self.protocol, data) if data else bytes(self.protocol.transport.value())
        if self.protocol.transport.producer is not None:
            self.protocol.transport.producer.resumeProducing()
            self.door.broker.settle()
            sent = bytes(self.protocol.transport.value())
        self.incoming.write(sent[self.received :])
        self.received = len(sent)

    def shake_hands(self) -> Client:
        for _ in range(10):
            try:
                self.ssl.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
            else:
                self.exchange()
                return self
        raise AssertionError("the handshake does not end")

    def send(self, data: bytes) -> bytes:
        self.ssl.write(data)
        self.exchange()
        return self.read()

    def read(self) -> bytes:
        received = b""
        try:
            while piece := self.ssl.read(65536):
                received += piece
        except ssl.SSLWantReadError:
            pass
        return received


def settings_of(files: Files, **changes: Any) -> TLSSettings:
    return TLSSettings(**{"pairs": (files.pair,), **changes})


@pytest.fixture
def door(files: Files) -> TLSDoor:
    return TLSDoor(settings_of(files))


# --- handshakes


@pytest.mark.parametrize("maximum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_connects(files: Files, door: TLSDoor, maximum: ssl.TLSVersion) -> None:
    client = Client(door, files.authority, maximum=maximum).shake_hands()
    assert client.send(CONNECT) == CONNACK
    assert client.send(PINGREQ * 3) == PINGRESP * 3
    assert "ECDHE" in client.ssl.cipher()[0] or maximum is ssl.TLSVersion.TLSv1_3  # type: ignore[index]
    assert client.ssl.compression() is None


def test_connect_may_come_with_the_end_of_the_handshake(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority)
    with pytest.raises(ssl.SSLWantReadError):
        client.ssl.do_handshake()
    client.exchange()
    client.ssl.do_handshake()
    assert client.send(CONNECT) == CONNACK


def test_a_handshake_may_come_byte_by_byte(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority, maximum=ssl.TLSVersion.TLSv1_2)
    done = False
    for _ in range(4):
        try:
            client.ssl.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        for byte in client.outgoing.read():
            client.exchange(bytes([byte]))
    assert done
    assert client.send(CONNECT) == CONNACK


def test_the_minimum_refuses_older_versions_with_an_alert(files: Files) -> None:
    door = TLSDoor(settings_of(files, minimum="1.3"))
    client = Client(door, files.authority, maximum=ssl.TLSVersion.TLSv1_2)
    with logged() as events, pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        client.shake_hands()
    assert any("versions of TLS below the minimum" in event.get("text", "") for event in events)


@pytest.mark.parametrize(("offered", "selected"), [(["mqtt"], "mqtt"), (["http/1.1", "mqtt"], "mqtt"), (None, None)])
def test_alpn(files: Files, door: TLSDoor, offered: list[str] | None, selected: str | None) -> None:
    client = Client(door, files.authority, protocols=offered).shake_hands()
    assert client.ssl.selected_alpn_protocol() == selected
    assert client.send(CONNECT) == CONNACK


def test_a_client_that_offers_only_other_protocols_is_refused(files: Files, door: TLSDoor) -> None:
    with logged() as events, pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        Client(door, files.authority, protocols=["h2"]).shake_hands()
    assert any("ALPN" in event.get("text", "") for event in events)


def again(first: Client, door: TLSDoor, authority: Authority, **options: Any) -> Client:
    """Connect once more, with the session of a client that is connected."""
    second = Client(door, authority, session=first.ssl.session, context=first.context, **options).shake_hands()
    assert second.send(CONNECT) == CONNACK
    return second


@pytest.mark.parametrize("maximum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed(files: Files, door: TLSDoor, maximum: ssl.TLSVersion) -> None:
    """Until there are new files: they make new tickets."""
    first = Client(door, files.authority, maximum=maximum).shake_hands()
    assert first.send(CONNECT) == CONNACK
    assert again(first, door, files.authority, maximum=maximum).ssl.session_reused
    other = TLSDoor(settings_of(files))
    assert not again(first, other, files.authority, maximum=maximum).ssl.session_reused


@pytest.mark.parametrize("maximum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("required", [True, False])
def test_no_session_is_resumed_where_clients_are_asked_for_certificates(
    files: Files, required: bool, maximum: ssl.TLSVersion
) -> None:
    """A resumed session would not look at the revocation list."""
    door = TLSDoor(settings_of(files, client_ca=files.client_ca, client_required=required))
    pair = files.client if required else None
    first = Client(door, files.authority, pair=pair, maximum=maximum).shake_hands()
    assert first.send(CONNECT) == CONNACK
    assert not again(first, door, files.authority, maximum=maximum).ssl.session_reused


def test_a_certificate_is_chosen_by_the_name_of_the_host(files: Files) -> None:
    other = KeyPair(
        "certificates.other", *files.authority.issue("other", ["*.other.example"]).write(files.folder, "other")
    )
    door = TLSDoor(settings_of(files, pairs=(files.pair, other)))
    assert Client(door, files.authority).shake_hands().send(CONNECT) == CONNACK
    assert Client(door, files.authority, name="x.other.example").shake_hands().send(CONNECT) == CONNACK
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unknown|localhost|match"):
        Client(door, files.authority, name="unknown.example").shake_hands()
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        Client(door, files.authority, name="x.other.example", protocols=["h2"]).shake_hands()
    assert Client(door, files.authority, name="x.other.example", protocols=["mqtt"]).shake_hands().send(CONNECT)
    assert Client(door, files.authority, protocols=["mqtt"]).shake_hands().send(CONNECT) == CONNACK


def test_the_header_of_a_proxy_comes_before_tls(files: Files) -> None:
    door = TLSDoor(settings_of(files), proxies=["192.0.2.9"])
    client = Client(door, files.authority)
    client.door.send(client.protocol, b"PROXY TCP4 198.51.100.1 192.0.2.9 5555 8883\r\n")
    assert client.shake_hands().send(CONNECT) == CONNACK
    assert door.acceptance.by_group == {"198.51.100.1": 1}


# --- clients' certificates


class Recorder:
    """An authenticator that admits everyone, and keeps the credentials."""

    def __init__(self) -> None:
        self.seen: list[Credentials] = []

    def authenticate(self, credentials: Credentials) -> Principal:
        self.seen.append(credentials)
        return Principal(credentials.client_id, credentials.username)


def test_the_verified_certificate_reaches_the_authenticator(files: Files) -> None:
    door = TLSDoor(settings_of(files, client_ca=files.client_ca, client_required=True))
    recorder: Any = Recorder()
    door.broker = MemoryBroker(authenticator=recorder)
    door.tls._turns._clock = door.broker.clock
    door.factory._clock = door.broker.clock
    client = Client(door, files.authority, pair=files.client).shake_hands()
    assert client.send(CONNECT) == CONNACK
    assert [each.certificate for each in recorder.seen] == [
        PeerCertificate("sensor-1", ("sensor-1.example",), "CN=sensor-1")
    ]


def refused(door: TLSDoor, files: Files, maximum: ssl.TLSVersion, **options: Any) -> str:
    """Return the broker's log line about a client that is refused; the client gets an alert."""
    with logged() as events, pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        Client(door, files.authority, maximum=maximum, **options).shake_hands().send(CONNECT)
    assert not door.broker.registry.connection_count
    lines = [event["text"] for event in events if "handshake failed" in event.get("text", "")]
    assert len(lines) == 1
    return str(lines[0])


VERSIONS = pytest.mark.parametrize("maximum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
def test_a_required_certificate_that_is_missing(files: Files, maximum: ssl.TLSVersion) -> None:
    door = TLSDoor(settings_of(files, client_ca=files.client_ca, client_required=True))
    assert "shows no certificate" in refused(door, files, maximum)


@VERSIONS
def test_an_optional_certificate(files: Files, maximum: ssl.TLSVersion) -> None:
    door = TLSDoor(settings_of(files, client_ca=files.client_ca))
    assert Client(door, files.authority, maximum=maximum).shake_hands().send(CONNECT) == CONNACK
    stranger = files.add("stranger", files.authority.issue("sensor-1", usage=CLIENT))
    assert "not in client_ca" in refused(TLSDoor(door.settings), files, maximum, pair=stranger)


@VERSIONS
def test_certificates_that_are_not_for_clients_or_expired(files: Files, maximum: ssl.TLSVersion) -> None:
    required = settings_of(files, client_ca=files.client_ca, client_required=True)
    server = files.add("not-client", files.clients.issue("sensor-1", usage=SERVER))
    assert "not made for clients" in refused(TLSDoor(required), files, maximum, pair=server)
    old = files.add("old", files.clients.issue("sensor-1", usage=CLIENT, days=-1, since=9))
    assert "it has expired" in refused(TLSDoor(required), files, maximum, pair=old)


@VERSIONS
def test_revoked_certificates_and_expired_lists_are_refused(files: Files, maximum: ssl.TLSVersion) -> None:
    revoked = files.clients.issue("sensor-9", usage=CLIENT)
    pair = files.add("revoked", revoked)
    crl = files.folder / "crl.pem"
    crl.write_bytes(files.clients.revocations(revoked))
    settings_ = settings_of(files, client_ca=files.client_ca, client_required=True, crl=crl)
    door = TLSDoor(settings_)
    assert Client(door, files.authority, pair=files.client, maximum=maximum).shake_hands().send(CONNECT) == CONNACK
    assert "it is revoked" in refused(TLSDoor(settings_), files, maximum, pair=pair)
    crl.write_bytes(files.clients.revocations(revoked, days=-1))
    assert "list has expired" in refused(TLSDoor(settings_), files, maximum, pair=files.client)
    crl.write_bytes(files.authority.revocations())
    assert "has no list of its issuer" in refused(TLSDoor(settings_), files, maximum, pair=files.client)


def test_a_chain_with_an_authority_between(files: Files) -> None:
    between = Authority("Between", files.clients)
    pair = files.add("deep", between.issue("sensor-2", usage=CLIENT))
    door = TLSDoor(settings_of(files, client_ca=files.client_ca, client_required=True))
    assert Client(door, files.authority, pair=pair).shake_hands().send(CONNECT) == CONNACK
    only = files.folder / "between.pem"
    only.write_bytes(between.chain)
    door = TLSDoor(settings_of(files, client_ca=only, client_required=True))
    assert Client(door, files.authority, pair=pair).shake_hands().send(CONNECT) == CONNACK
    assert "its issuer" in refused(TLSDoor(door.settings), files, ssl.TLSVersion.TLSv1_3, pair=files.client)


# --- clients that do not speak TLS, or break it


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (CONNECT, "MQTT without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "plain text, such as HTTP"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 5 6\r\n", "PROXY protocol"),
        (b"\x80\x2e\x01\x03", "0x80"),
        (b"\x16\x03\x01\xff\xff" + bytes(64), "handshake failed"),
        (b"\x16\x03\x01\0\x05\x0b" + bytes(4), "handshake failed"),
        (b"\x16\x15\x01", ""),
    ],
)
def test_a_client_that_speaks_no_tls_is_closed_with_one_line(door: TLSDoor, data: bytes, told: str) -> None:
    with logged() as events:
        protocol = door.accept(STRANGER)
        door.send(protocol, data)
        door.broker.advance(16)
    assert protocol.transport.disconnecting
    lines = [event["text"] for event in events if "text" in event]
    assert len(lines) == 1
    assert told in lines[0]
    assert not any("log_failure" in event for event in events)


def test_a_handshake_that_does_not_end_is_closed_after_15_seconds(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority)
    with pytest.raises(ssl.SSLWantReadError):
        client.ssl.do_handshake()
    hello = client.outgoing.read()
    for byte in hello[:14]:
        client.exchange(bytes([byte]))
        door.broker.advance(1)
    assert not client.protocol.transport.disconnecting
    door.broker.advance(1.1)
    assert client.protocol.transport.disconnecting or client.protocol.transport.aborted
    assert door.broker.counters.connections_not_admitted_in_time == 1


def test_garbage_after_the_handshake_ends_the_connection(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    assert client.send(CONNECT) == CONNACK
    with logged() as events:
        client.exchange(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            client.read()
    assert client.protocol.transport.disconnecting
    assert not door.broker.registry.connection_count
    assert sum("broke the TLS protocol" in event.get("text", "") for event in events) == 1


CHANGES = st.tuples(
    st.sampled_from(["whole", "cut", "changed", "twice", "garbage"]), st.floats(0, 1), st.integers(1, 255)
)


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(CHANGES, min_size=1, max_size=4))
def test_no_bytes_of_a_client_cause_an_unexpected_error(files: Files, changes: list[tuple[str, float, int]]) -> None:
    """Truncated, changed and repeated pieces of a real handshake, and of what follows it."""
    door = TLSDoor(settings_of(files, client_ca=files.client_ca))
    client = Client(door, files.authority, pair=files.client)
    with logged() as events:
        for step, (change, place, number) in enumerate(changes):
            with suppress(ssl.SSLError):
                if step < 2:
                    client.ssl.do_handshake()
                else:
                    client.ssl.write(CONNECT)
            piece = bytearray(client.outgoing.read())
            at = int(place * (len(piece) - 1)) if piece else 0
            match change:
                case "cut":
                    piece = piece[:at]
                case "changed" if piece:
                    piece[at] ^= number
                case "twice":
                    piece *= 2
                case "garbage":
                    piece += bytes([number]) * (at + 1)
            client.exchange(bytes(piece))
        door.broker.advance(16)
        client.protocol.transport.producer = None
        client.protocol.connectionLost()
        door.broker.settle()
    assert not any("log_failure" in event for event in events)
    assert not any("unexpected" in event.get("text", "") for event in events)
    assert not door.broker.registry.connection_count


def test_a_packet_before_garbage_is_acted_on_and_its_answer_is_dropped(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    client.ssl.write(CONNECT)
    with logged() as events:
        client.exchange(2 * client.outgoing.read())
    assert client.protocol.transport.disconnecting
    assert door.broker.counters.connects == 1
    assert not any("unexpected" in event.get("text", "") for event in events)


def test_many_short_records_take_turns_and_the_client_is_not_read_meanwhile(files: Files, door: TLSDoor) -> None:
    """Each record costs some microseconds, however short it is."""
    client = Client(door, files.authority).shake_hands()
    client.send(CONNECT)
    for byte in PINGREQ * MOST_RECORDS:
        client.ssl.write(bytes([byte]))
    layer = client.protocol._above
    decrypted: list[int] = []

    class Above:
        def receive(self, data: bytes) -> None:
            decrypted.append(len(data))

        def lost(self) -> None: ...

        def drained(self) -> None: ...

    layer.above = Above()
    client.protocol.dataReceived(client.outgoing.read())
    assert decrypted == [MOST_RECORDS]
    assert client.protocol.transport.producerState == "paused"
    client.protocol.resume()
    assert client.protocol.transport.producerState == "paused"
    door.broker.settle()
    assert decrypted == [MOST_RECORDS, MOST_RECORDS]


# --- sent bytes


class Stuck:
    """Makes a transport in memory take only some of the bytes, as a slow socket would."""

    def __init__(self, protocol: Any) -> None:
        self.transport = protocol.transport
        self.written = b""
        self.room = 0
        protocol._send = self.send
        self.transport.write = self.write

    def send(self, data: bytes) -> int:
        sent, self.room = min(self.room, len(data)), max(0, self.room - len(data))
        self.written += data[:sent]
        return sent

    def write(self, data: bytes) -> None:
        self.transport.dataBuffer += data

    def drain(self) -> None:
        self.written += self.transport.dataBuffer
        self.transport.dataBuffer = b""
        self.transport.producer.resumeProducing()


def test_a_long_message_is_encrypted_in_pieces_and_every_byte_is_counted(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    client.send(CONNECT)
    network = client.protocol._connection._network
    stuck = Stuck(client.protocol)
    message = bytes(range(256)) * 4096
    assert not network.write(message)
    assert len(stuck.transport.dataBuffer) < PIECE * 1.01
    assert network.unsent() == len(stuck.transport.dataBuffer) + len(message) - PIECE
    drains = 0
    while network.unsent():
        before = network.unsent()
        stuck.drain()
        drains += 1
        assert network.unsent() < before
    assert drains == 4
    client.incoming.write(stuck.written)
    assert client.read() == message


def test_the_last_bytes_leave_before_close_notify(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    client.send(CONNECT)
    stuck = Stuck(client.protocol)
    message = bytes(range(256)) * 4096
    client.protocol._connection.finish(message, None)
    assert not client.protocol.transport.disconnecting
    for _ in range(3):
        stuck.drain()
    assert client.protocol.transport.disconnecting
    stuck.written += stuck.transport.dataBuffer
    client.incoming.write(stuck.written)
    assert client.read() == message
    assert client.ssl.read(1) == b"", "close_notify did not come"


def test_a_client_that_takes_none_of_the_last_bytes_is_cut_off(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    client.send(CONNECT)
    Stuck(client.protocol)
    client.protocol._connection.finish(bytes(4 * PIECE), None)
    door.broker.clock.advance(CLOSING_TIME + 0.1)
    assert client.protocol.transport.aborted


def test_close_notify_of_the_client_ends_the_connection(files: Files, door: TLSDoor) -> None:
    client = Client(door, files.authority).shake_hands()
    client.send(CONNECT)
    with pytest.raises(ssl.SSLWantReadError):
        client.ssl.unwrap()
    client.exchange()
    client.ssl.unwrap()
    assert client.protocol.transport.disconnecting
    assert not door.broker.registry.connection_count


# --- turns and what is left


class Turns:
    """A reactor whose turns the test makes, and a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Any] = []

    def seconds(self) -> float:
        return self.now

    def callLater(self, _delay: float, call: Any) -> None:
        self.due.append(call)

    def turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


def test_handshakes_share_the_turns_of_the_reactor() -> None:
    reactor: Any = Turns()
    turns = turns_of_handshakes(reactor)
    done: list[int] = []

    class Step:
        def __init__(self, number: int) -> None:
            self.number = number

        def step(self) -> None:
            done.append(self.number)
            reactor.now += 0.002

    for number in range(5):
        step = Step(number)
        turns.enter(step, step.step)
    lengths = []
    while reactor.due:
        reactor.turn()
        lengths.append(len(done))
    assert done == list(range(5))
    assert lengths == [2, 4, 5]


@pytest.mark.parametrize("life", ["silent", "garbage", "handshake", "connected", "closed", "refused"])
def test_a_closed_tls_connection_is_freed_at_once(files: Files, life: str) -> None:
    required = life == "refused"
    door = TLSDoor(settings_of(files, client_ca=files.client_ca if required else None, client_required=required))

    def live() -> list[weakref.ref[Any]]:
        client = Client(door, files.authority)
        if life == "garbage":
            client.exchange(b"GET /")
        elif life != "silent":
            try:
                client.shake_hands()
                if life != "handshake":
                    client.send(CONNECT)
                if life == "closed":
                    client.protocol._connection.finish(b"", None)
            except ssl.SSLError:
                pass
        protocol = client.protocol
        gone: list[weakref.ref[Any]] = [weakref.ref(protocol), weakref.ref(protocol._connection)]
        layer = protocol._above
        if layer._ssl is not None:
            gone.append(weakref.ref(layer._ssl))
        protocol.transport.producer = None
        protocol.connectionLost()
        door.broker.settle()
        return gone

    live()
    gc.collect()
    gc.disable()
    try:
        gone = live()
        door.broker.clock.advance(30)
        assert [one() for one in gone] == [None] * len(gone)
    finally:
        gc.enable()
