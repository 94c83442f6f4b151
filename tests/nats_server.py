"""Real servers of NATS for tests, and a proxy that can hold what passes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.processes import PATIENCE, unmeasured

PROGRAM = str(Path(sys.executable).parent / "nats-server")


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class NatsProcess:
    """A server of NATS on a port of its own; ``settings`` are more lines of its configuration."""

    def __init__(self, folder: Path, *settings: str, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self._file = folder / f"nats-{self.port}.conf"
        self._log = folder / f"nats-{self.port}.log"
        self._file.write_text("\n".join([f"listen: 127.0.0.1:{self.port}", *settings]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server; it listens when this returns."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "-c", str(self._file)], stderr=log, env=unmeasured())
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError(self.log()) from None
                time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def running(*servers: NatsProcess) -> Iterator[None]:
    """Start servers, and end them."""
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            server.kill()


def pair_of_servers(folder: Path, settings: Sequence[str] = ()) -> tuple[NatsProcess, NatsProcess, int, int]:
    """Return two servers for one cluster of NATS, the port to which the second one's route goes, and the first's.

    Whoever listens on the former passes the route on to the latter.
    """
    through, first = free_port(), free_port()
    one = NatsProcess(
        folder, f'cluster {{ name: c, listen: "127.0.0.1:{first}", no_advertise: true, pool_size: -1 }}', *settings
    )
    other = NatsProcess(
        folder,
        f'cluster {{ name: c, listen: "127.0.0.1:{free_port()}", no_advertise: true, pool_size: -1,'
        f' routes: ["nats://127.0.0.1:{through}"] }}',
        *settings,
    )
    return one, other, through, first


_FORWARDER = """
import socket, sys, threading

def pass_on(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    here, _ = listener.accept()
    try:
        there = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    except OSError:
        here.close()
        continue
    for pair in ((here, there), (there, here)):
        threading.Thread(target=pass_on, args=pair, daemon=True).start()
"""


@contextmanager
def forwarder(port: int, target: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that passes connections on. While it is stopped, they stay open, and all that is sent waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FORWARDER, str(port), str(target)], stdout=subprocess.PIPE, text=True, env=unmeasured()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


class _Side(Protocol):
    """One end of a connection through the proxy."""

    def __init__(self, proxy: HoldingProxy, other: _Side | None = None) -> None:
        self.proxy = proxy
        self.other = other
        self.early = b""

    def connectionMade(self) -> None:
        self.proxy.sides.append(self)
        if self.other is None:
            target = TCP4ClientEndpoint(reactor, "127.0.0.1", self.proxy.target)
            target.connect(Factory.forProtocol(lambda: _Side(self.proxy, self))).addErrback(lambda _: self.end())
        else:
            self.other.other = self
            self.dataReceivedBy(self.other.early)

    def dataReceivedBy(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        if self.proxy.holds:
            return
        if self.other is None or self.other.transport is None:
            self.early += data
        else:
            self.other.dataReceivedBy(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.proxy.sides.remove(self)
        if self.other is not None and not self.proxy.holds:
            self.other.end()

    def end(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()


class HoldingProxy:
    """Passes connections on to a port. While it ``holds``, they stay open, and what is sent disappears."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self.holds = False
        self.sides: list[_Side] = []
        factory = Factory.forProtocol(lambda: _Side(self))
        self._listener: Any = cast("Any", reactor).listenTCP(port, factory, interface="127.0.0.1")
        self.port: int = self._listener.getHost().port

    def reset(self) -> None:
        """End all connections; new ones pass."""
        self.holds = False
        for side in list(self.sides):
            side.end()

    def stop(self) -> Any:
        """End all connections, and take no more."""
        self.reset()
        return self._listener.stopListening()
