"""Listeners: Twisted endpoints that the broker opens at its start. If one port is in use, the broker does not start."""

from __future__ import annotations

from attrs import frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure


class CannotListen(Exception):
    """A listener could not be opened; the text names it and the reason."""


@frozen
class Listener:
    """A listener: its name, its endpoint (a Twisted server endpoint string), and the factory of its protocols."""

    name: str
    endpoint: str
    factory: Factory


class Listening:
    """The open ports of the broker."""

    def __init__(self, reactor: object, listeners: list[Listener]) -> None:
        self._reactor = reactor
        self._listeners = listeners
        self._ports: list[IListeningPort] = []

    def open(self) -> list[str]:
        """Open all listeners; return ``NAME ADDRESS`` of each. Raises :class:`CannotListen`, and then closes all."""
        lines = []
        for listener in self._listeners:
            port = self._open(listener)
            self._ports.append(port)
            lines.append(f"{listener.name} {address_text(port)}")
        return lines

    def close(self) -> list[Deferred[None]]:
        """Stop accepting; each Deferred fires when its port is closed."""
        ports, self._ports = self._ports, []
        closing = []
        for port in ports:
            stopping = port.stopListening()
            if isinstance(stopping, Deferred):
                closing.append(stopping)
        return closing

    def _open(self, listener: Listener) -> IListeningPort:
        opened: list[IListeningPort] = []
        failed: list[Failure] = []
        try:
            endpoint = serverFromString(self._reactor, listener.endpoint)
            # Endpoints of sockets answer at once, so a start can fail before the reactor runs.
            endpoint.listen(listener.factory).addCallbacks(opened.append, failed.append)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            self.close()
            raise CannotListen(
                f"listener {listener.name}: {listener.endpoint!r} is not a server endpoint ({error}); "
                "write for example tcp:1883:interface=127.0.0.1"
            ) from error
        if opened:
            return opened[0]
        self.close()
        reason: object = "the endpoint did not open at once"
        if failed:
            problem = failed[0].value
            reason = problem
            if isinstance(problem, CannotListenError):
                reason = getattr(problem.socketError, "strerror", None) or problem
        raise CannotListen(f"listener {listener.name}: cannot listen on {listener.endpoint}: {reason}")


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
