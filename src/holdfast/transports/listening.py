"""Listeners: Twisted endpoints that the broker opens at its start. If one port is in use, the broker does not start.

A listener whose address this machine does not have yet can wait for it: after a power cut, a network may come up later
than the broker.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from errno import EADDRNOTAVAIL
from pathlib import Path

from attrs import frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.identity.addresses import Peer
from holdfast.scheduling.reactor import admit_strangers, let_wait
from holdfast.sessions.counters import Counters
from holdfast.watch.audit import REJECTED, IAudit, NoAudit
from holdfast.watch.log import ClientLog

#: Connections that the kernel keeps for a listener while the broker is busy: a fleet that returns at once.
BACKLOG = 4096

#: Connections that are accepted in one turn of the reactor: a millisecond or two. The others wait in the backlog.
MOST_ACCEPTS = 8

_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


class CannotListen(Exception):
    """A listener could not be opened; the text names it and the reason."""


class AddressMissing(CannotListen):
    """A listener could not be opened, because this machine does not have its address, or does not know its name."""


@frozen
class Listener:
    """A listener: its name, its endpoint as configured, the Twisted endpoint to open, and the protocols' factory.

    With ``strangers``, its connections wait for others until their protocols declare them admitted.
    """

    name: str
    endpoint: str
    opened: str
    factory: Factory
    strangers: bool = False


class Listening:
    """The open ports of the broker. ``somaxconn`` is the file in which Linux tells the longest backlog."""

    _log = Logger()

    def __init__(self, reactor: object, listeners: list[Listener], somaxconn: Path = _SOMAXCONN) -> None:
        self._reactor = reactor
        self._listeners = listeners
        self._somaxconn = somaxconn
        self._ports: dict[str, IListeningPort] = {}
        self._late: dict[str, tuple[Listener, str]] = {}

    @property
    def open_names(self) -> list[str]:
        """The names of the open listeners."""
        return [name for name, port in self._ports.items() if getattr(port, "connected", True)]

    @property
    def late(self) -> list[str]:
        """For each listener that waits for its address, why it is not open."""
        return [reason for _, reason in self._late.values()]

    def open(self, wait: bool = False) -> list[str]:
        """Open all listeners, as :meth:`add` does."""
        lines = self.add(self._listeners, wait)
        self._warn_of_short_backlog()
        return lines

    def try_out(self) -> None:
        """Open all listeners and close them again. Raises :class:`CannotListen`, but not for a missing address."""
        self.add(self._listeners, wait=True)
        self.close()

    def add(self, listeners: Sequence[Listener], wait: bool = False) -> list[str]:
        """Open more listeners; return ``NAME ADDRESS`` of each. Raises :class:`CannotListen`, and then opens none.

        With ``wait``, a listener whose address is missing is left to :meth:`open_late`.
        """
        lines: list[str] = []
        try:
            for listener in listeners:
                try:
                    port = self._open(listener)
                except AddressMissing as missing:
                    if not wait:
                        raise
                    self._late[listener.name] = listener, str(missing)
                    continue
                if isinstance(port, Port):
                    accept_in_portions(port)
                    let_wait(port)
                    if listener.strangers:
                        admit_strangers(port)
                self._ports[listener.name] = port
                lines.append(f"{listener.name} {address_text(port)}")
        except CannotListen:
            self.remove([listener.name for listener in listeners])
            raise
        return lines

    def open_late(self) -> list[str]:
        """Try the late listeners again; return ``NAME ADDRESS`` of each that is open now.

        One that cannot be opened for another reason stays late: clients of the other listeners are served meanwhile.
        """
        lines: list[str] = []
        for listener, reason in list(self._late.values()):
            try:
                lines += self.add([listener])
            except CannotListen as error:
                if str(error) != reason:
                    self._log.error("{error}; the broker tries again", error=error)
                self._late[listener.name] = listener, str(error)
            else:
                self._late.pop(listener.name, None)
        return lines

    def remove(self, names: Sequence[str]) -> list[Deferred[None]]:
        """Stop accepting at these listeners; each Deferred fires when its port is closed."""
        closing = []
        for name in names:
            self._late.pop(name, None)
            port = self._ports.pop(name, None)
            stopping = None if port is None else port.stopListening()
            if isinstance(stopping, Deferred):
                closing.append(stopping)
        return closing

    def close(self) -> list[Deferred[None]]:
        """Stop accepting; each Deferred fires when its port is closed."""
        return self.remove([*self._ports, *self._late])

    def _warn_of_short_backlog(self) -> None:
        try:
            longest = int(self._somaxconn.read_text())
        except (OSError, ValueError):  # not Linux: the backlog cannot be known
            return
        if longest < BACKLOG:
            self._log.warn(
                "the kernel shortens the backlog of {backlog} connections to {longest}: raise net.core.somaxconn, or"
                " many clients that connect at once wait for a second or more",
                backlog=BACKLOG,
                longest=longest,
            )

    def _open(self, listener: Listener) -> IListeningPort:
        opened: list[IListeningPort] = []
        failed: list[Failure] = []
        try:
            endpoint = serverFromString(self._reactor, listener.opened)
            # Endpoints of sockets answer at once, so a start can fail before the reactor runs.
            endpoint.listen(listener.factory).addCallbacks(opened.append, failed.append)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise CannotListen(
                f"listener {listener.name}: {listener.endpoint!r} is not a server endpoint ({error}); "
                "write for example tcp:1883:interface=127.0.0.1"
            ) from error
        if opened:
            return opened[0]
        reason: object = "the endpoint did not open at once"
        missing = False
        if failed:
            problem = failed[0].value
            reason = problem
            if isinstance(problem, CannotListenError):
                cause = problem.socketError
                reason = getattr(cause, "strerror", None) or problem
                missing = isinstance(cause, socket.gaierror) or getattr(cause, "errno", None) == EADDRNOTAVAIL
        kind = AddressMissing if missing else CannotListen
        raise kind(f"listener {listener.name}: cannot listen on {listener.endpoint}: {reason}")


def accept_in_portions(port: Port) -> None:
    """Let a port accept at most ``MOST_ACCEPTS`` connections at a time, so that they delay no connected client."""
    accept: Callable[[], None] = port.doRead

    def accept_a_portion() -> None:
        # Twisted raises this number without end while more connections wait than it accepts.
        port.numberAccepts = min(port.numberAccepts, MOST_ACCEPTS)
        accept()

    port.doRead = accept_a_portion  # type: ignore[method-assign]


def address_text(port: IListeningPort) -> str:
    """Return a port's address as ``tcp:HOST:PORT`` or ``unix:PATH``."""
    address = port.getHost()
    if isinstance(address, IPv4Address):
        return f"tcp:{address.host}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"tcp:[{address.host}]:{address.port}"
    if isinstance(address, UNIXAddress):
        name = address.name
        return f"unix:{name.decode() if isinstance(name, bytes) else name}"
    return str(address)


# Connections that are refused before CONNECT: counted, and told in the log.


_REASONS = {
    Refusal.OPEN_FILES: "{process.most} connections are open, all that the process's limit of open files allows",
    Refusal.CONNECTIONS: "{limits.max_connections} connections are open (max_connections)",
    Refusal.GAVE_WAY: "a new one takes its place; {limits.max_connections} are open (max_connections)",
    Refusal.CONNECTIONS_PER_ADDRESS: "{limits.max_connections_per_address} connections of {peer.group} are open"
    " (max_connections_per_address)",
    Refusal.HALF_OPEN_PER_ADDRESS: "{limits.max_half_open_per_address} connections of {peer.group} wait for the end of"
    " their CONNECT (max_half_open_per_address)",
    Refusal.RATE: "connections come too fast (max_conn_rate)",
    Refusal.RATE_PER_ADDRESS: "connections of {peer.group} come too fast (max_conn_rate_per_address)",
    Refusal.BANNED: "its address is banned",
    Refusal.UNTRUSTED_PROXY: "it is not a trusted proxy (trusted_proxies)",
    Refusal.BAD_PROXY_HEADER: "it sent no valid header of the PROXY protocol",
}

_NO_AUDIT = NoAudit()


class RefusedConnections:
    """Counts and logs the refused connections of all listeners."""

    def __init__(
        self, counters: Counters, process: ProcessConnections, log: ClientLog, audit: IAudit = _NO_AUDIT
    ) -> None:
        self._counters = counters
        self._process = process
        self._log = log
        self._audit = audit

    def refused(self, listener: str, limits: ConnectionLimits, refusal: Refusal, peer: Peer) -> None:
        """Note that a connection of this peer was refused."""
        counters, name = self._counters, refusal.value
        setattr(counters, name, getattr(counters, name) + 1)

        fields = {"reason": name, "address": str(peer.ip or "unix"), "port": peer.port or None, "listener": listener}
        self._audit.tell(REJECTED, peer.group, fields)

        def line() -> str:
            reason = _REASONS[refusal].format(limits=limits, process=self._process, peer=peer)
            verb = "closes" if refusal is Refusal.GAVE_WAY else "refuses"
            return f"listener {listener} {verb} a connection of {peer}: {reason}"

        self._log.write(f"listener {listener} refuses connections ({name})", peer.group, line, "warn")

    def handshake_failed(self, listener: str, peer: Peer, cause: str) -> None:
        """Log that the TLS handshake of this peer failed. ``cause`` is a clause."""
        self._log.write(
            f"listener {listener}: TLS handshakes fail", peer.group,
            lambda: f"listener {listener} closes a connection of {peer}: its TLS handshake failed: {cause}",
        )  # fmt: skip
