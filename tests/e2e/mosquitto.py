"""A real mosquitto with an ACL file that changes, and clients of MQTT 5 that ask it about topics."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from holdfast.wire import PacketParser, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import ReasonCode
from tests.processes import PATIENCE

PROGRAM = shutil.which("mosquitto") or next(iter(Path("/usr/sbin").glob("mosquitto")), None)
_Answer = TypeVar("_Answer", bound=p.Packet)

#: the admin of every file, who may do everything
ADMIN = "root"


class Client:
    """A connected client. Raises PermissionError if it is refused."""

    def __init__(self, port: int, username: str | None, client_id: str, password: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._parser = PacketParser(1 << 20, 5)
        self._waiting: list[p.Packet] = []
        self._identifier = 0
        self.received: set[str] = set()
        connect = p.Connect(client_id, 5, username=username, password=password.encode() if password else None)
        connack = self._ask(connect, p.Connack)
        if connack.reason_code != ReasonCode.SUCCESS:
            self.close()
            raise PermissionError(f"refused: {connack.reason_code:#x}")

    def close(self) -> None:
        self._socket.close()

    def may_publish(self, topic: str) -> bool:
        """Publish with QoS 1; tell whether the broker accepts it."""
        self._identifier += 1
        puback = self._ask(p.Publish(topic, b"x", 1, packet_identifier=self._identifier), p.Puback)
        assert puback.packet_identifier == self._identifier
        return puback.reason_code != ReasonCode.NOT_AUTHORIZED

    def subscribe(self, topic_filter: str) -> None:
        self._identifier += 1
        suback = self._ask(p.Subscribe(self._identifier, [p.SubscriptionRequest(topic_filter)]), p.Suback)
        assert list(suback.reason_codes) == [0]

    def may_subscribe(self, topic_filter: str) -> bool:
        """Subscribe; tell whether the broker grants it."""
        self._identifier += 1
        suback = self._ask(p.Subscribe(self._identifier, [p.SubscriptionRequest(topic_filter)]), p.Suback)
        return list(suback.reason_codes) == [0]

    def received_so_far(self) -> set[str]:
        """Return the topics of all messages that the broker has for this client."""
        self._ask(p.Pingreq(), p.Pingresp)  # the answer comes after the messages
        return self.received

    def _ask(self, packet: p.Packet, answer: type[_Answer]) -> _Answer:
        self._socket.sendall(encode(packet, 5))
        while True:
            for index, waiting in enumerate(self._waiting):
                if isinstance(waiting, answer):
                    del self._waiting[index]
                    return waiting
            self._read()

    def _read(self) -> None:
        data = self._socket.recv(65536)
        assert data, "mosquitto has closed the connection"
        self._parser.receive_data(data)
        while (packet := self._parser.next_packet()) is not None:
            if isinstance(packet, p.Publish):
                self.received.add(packet.topic)
            else:
                self._waiting.append(packet)


class Mosquitto:
    """A mosquitto whose ACL file is at ``acl``."""

    def __init__(self, folder: Path) -> None:
        self.acl = folder / "acl"
        self.port = _free_port()
        self._files = 0
        self._process: subprocess.Popen[bytes] | None = None
        config = folder / "mosquitto.conf"
        # As root, mosquitto becomes another user, who must be able to read the file.
        config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\nacl_file {self.acl}\nuser root\n")
        self._config = config

    def start(self) -> None:
        self.acl.write_text(f"user {ADMIN}\ntopic readwrite #\n")
        self.acl.chmod(0o600)
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [str(PROGRAM), "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with self.client(ADMIN, "first"):  # a signal before would end it
            pass

    def refuses(self, lines: str) -> bool:
        """Start with a file, and tell whether mosquitto ends because of it."""
        self.acl.write_text(lines, encoding="utf-8")
        assert PROGRAM is not None
        with subprocess.Popen([str(PROGRAM), "-c", str(self._config)], stderr=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + PATIENCE
                while process.poll() is None:
                    with (
                        contextlib.suppress(ConnectionRefusedError),
                        socket.create_connection(("127.0.0.1", self.port)),
                    ):
                        return False
                    assert time.monotonic() < until, "mosquitto neither starts nor ends"
                    time.sleep(0.02)
                return process.returncode != 0
            finally:
                process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def load(self, lines: str) -> None:
        """Let mosquitto read other rules, and wait until it has: only the new file allows this topic.

        The lines must be right: mosquitto allows everything after a file that it refuses.
        """
        assert self._process is not None
        self._files += 1
        mark = f"mark/{self._files}"
        admin = f"user {ADMIN}\ntopic readwrite #\ntopic readwrite $x/#\n"
        self.acl.write_text(f"{lines}\n{admin}user marker\ntopic write {mark}\n")
        self._process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while True:
            with self.client("marker", "mark") as client:
                if client.may_publish(mark):
                    return
            assert time.monotonic() < deadline, "mosquitto does not read the file"
            time.sleep(0.02)

    @contextlib.contextmanager
    def client(self, username: str | None, client_id: str) -> Iterator[Client]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                client = Client(self.port, username, client_id)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, "mosquitto does not start"
                time.sleep(0.05)
        try:
            yield client
        finally:
            client.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
