"""One lasting connection to NATS: a protocol of Twisted, and a client that connects again to one of several servers.

How it works. A server speaks first. Then the client begins TLS, logs in, subscribes and sends PING; the PONG means that
the server has taken all of it:

    S  INFO {...}
    C  CONNECT {...}  SUB holdfast.plant.2 1  PING
    S  PONG                                               connected
    C  PING, every second                                 the connection is down when two are not answered
    C  PUB holdfast.plant.3 ...                           while connected only

A server that stops reading makes the transport pause; after :data:`MOST_PAUSE` the connection is down as well. A
connection that is down is aborted, and the next server is tried: each once without a delay worth the name, then with
growing ones. A random part keeps members from returning all at the same time. Servers that INFO names are tried like
those of the configuration.

The client stores nothing for a server that is not there: :meth:`NatsClient.publish` says so, and the caller has another
way. At most :data:`MOST_WAITING` bytes wait for a server that reads slowly.

Left out: servers that begin with TLS before INFO, and logins with keys and tokens of NATS's operators (NKEY, JWT).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from attrs import evolve
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.cluster import nats
from holdfast.cluster.nats import Info, Message, NatsError, NatsParser, Pinged, Ponged, Refused, TooLarge
from holdfast.config.sections.cluster import NatsServer
from holdfast.version import version

#: seconds between two PINGs; a server that has not answered two of them when the third is due is not there
PING_INTERVAL = 1.0
_MOST_UNANSWERED = 2
#: after so many PINGs, a connection has ended an outage
_STEADY = 5
#: seconds for which a server may stop reading
MOST_PAUSE = 2.0
#: bytes that wait for a server that does not read
MOST_WAITING = 8 << 20
#: seconds until a server has to accept a connection, and until it has to accept the login
_CONNECTING, _LOGIN = 2.0, 4.0
#: seconds for what is still to be sent at the end
_CLOSING = 1.0
#: the least number of bytes of a message that a server has to take
LEAST_PAYLOAD = 1024
#: seconds before the next server is tried: while some of this outage were not tried yet; then the least and the most
_AT_ONCE, _LEAST_DELAY, _MOST_DELAY = 0.05, 0.25, 2.0
#: servers that are learned from others
_MOST_LEARNED = 32
#: sentences about one outage that are logged
_MOST_TOLD = 20


def greeting(server: NatsServer, name: str, subject: str) -> bytes:
    """Return the lines that log in at a server, and subscribe to a subject. ``name`` is for the server's log."""
    options: dict[str, Any] = {
        "verbose": False, "pedantic": False, "echo": False, "protocol": 1, "lang": "python-twisted",
        "version": version(), "name": name, "tls_required": server.needs_tls,
    }  # fmt: skip
    if server.token:
        options["auth_token"] = server.token
    elif server.user:
        options.update({"user": server.user, "pass": server.password})
    return nats.connect(options) + nats.subscribe(subject, 1) + nats.PING


class Down(Exception):
    """The connection to NATS is of no use. The text is a clause for the log."""


@implementer(IPushProducer)
class _Connection(Protocol):
    """A connection to one server, until it is lost."""

    def __init__(self, client: NatsClient, server: NatsServer) -> None:
        self._client = client
        self._parser = NatsParser()
        self._begun = False
        self._ended = self._closes = False
        self._unanswered = self._pings = 0
        self._reads = True
        self._timer: IDelayedCall | None = None  # the login, then the next PING
        self._pause: IDelayedCall | None = None
        self._why: Down | None = None
        self.server = server
        self.is_up = False
        #: bytes that were sent while the server does not read
        self.waiting = 0
        self.max_payload = nats.LARGEST_PAYLOAD

    # --- the transport ------------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Wait for INFO."""
        transport: Any = self.transport
        transport.setTcpNoDelay(True)
        transport.registerProducer(self, True)
        self._timer = self._client.clock.callLater(_LOGIN, self.end, f"no login within {_LOGIN:g} s")

    def dataReceived(self, data: bytes) -> None:
        """Take what the server says."""
        try:
            events = self._parser.feed(data)
        except NatsError as error:
            events = error.events
            self._take(events)
            self.end(f"the server has sent something that is no NATS: {error}")
            return
        self._take(events)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the client."""
        self.is_up = False
        for call in (self._timer, self._pause):
            if call is not None and call.active():
                call.cancel()
        self._client.lost(self, self._why or Down(_explained(reason, self.server)))

    def pauseProducing(self) -> None:
        """Note that the server does not read."""
        if self._pause is None:
            text = f"the server has not read for {MOST_PAUSE:g} s"
            self._pause = self._client.clock.callLater(MOST_PAUSE, self.end, text)

    def resumeProducing(self) -> None:
        """Note that the server has read everything."""
        self.waiting = 0
        if self._pause is not None:
            if self._pause.active():
                self._pause.cancel()
            self._pause = None

    def stopProducing(self) -> None:
        """Nothing is to be stopped: the loss of the connection is told by itself."""

    def end(self, why: str) -> None:
        """Abort the connection, once."""
        if not self._ended:
            self._ended = True
            self.is_up = False
            self._why = Down(why)
            transport: Any = self.transport
            transport.abortConnection()

    def close(self) -> None:
        """Close the connection when everything is sent, within a second."""
        transport: Any = self.transport
        self.is_up = False
        self._closes = True
        transport.unregisterProducer()
        transport.loseConnection()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._client.clock.callLater(_CLOSING, self.end, "this broker stops")

    # --- the protocol -------------------------------------------------------------------------------------------------

    def _take(self, events: list[nats.Event]) -> None:
        for at, event in enumerate(events):
            if self._ended or self._closes:
                return
            if isinstance(event, Message):
                self._client.message(event.payload)
            elif isinstance(event, Ponged):
                self._ponged()
            elif isinstance(event, Pinged):
                self._write(nats.PONG)
            elif isinstance(event, Info):
                self._info(event, is_last=at == len(events) - 1)
            elif isinstance(event, Refused):
                self._refused(event.text)
            elif isinstance(event, TooLarge):
                self._client.too_large += 1

    def _info(self, info: Info, is_last: bool) -> None:
        self.max_payload = info.max_payload
        if info.max_payload < LEAST_PAYLOAD:
            self.end(f"max_payload of the server is {info.max_payload}; allow {LEAST_PAYLOAD} or more, best 1MB")
            return
        self._client.learn(self.server, info.urls)
        if self._begun:
            if info.is_leaving:
                self.end("the server is about to stop")
            return
        self._begun = True
        if info.needs_tls or self.server.needs_tls:
            if not (info.needs_tls or info.offers_tls):
                self.end("the server has no TLS, and cluster.bus says tls://")
                return
            if not is_last:  # somebody in between could have written it
                self.end("the server has sent more before TLS than INFO")
                return
            transport: Any = self.transport
            transport.startTLS(self._client.tls(self.server.host))
        self._write(self._client.greeting(self.server))

    def _ponged(self) -> None:
        self._unanswered = 0
        if self._begun and not self.is_up:
            self.is_up = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._client.clock.callLater(PING_INTERVAL, self._ping)
            self._client.connected(self)

    def _ping(self) -> None:
        if self._unanswered >= _MOST_UNANSWERED:
            self.end(f"the server has not answered for {_MOST_UNANSWERED * PING_INTERVAL:g} s")
            return
        self._pings += 1
        if self._pings == _STEADY:
            self._client.steady()
        if self._reads:
            self._unanswered += 1
            self._write(nats.PING)
        self._timer = self._client.clock.callLater(PING_INTERVAL, self._ping)

    def _refused(self, text: str) -> None:
        """A refused permission leaves the connection open; all else ends it, by this side if not by the server."""
        if text.lower().startswith("permissions violation"):
            self._client.forbidden(self.server, text)
        else:
            self.end(f"the server says: {text[:200]}")

    def _write(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.write(data)

    def publish(self, data: bytes) -> bool:
        """Send a line with its payload. Return False if it has no room."""
        if self._pause is not None:
            if self.waiting + len(data) > MOST_WAITING:
                return False
            self.waiting += len(data)
        self._write(data)
        return True

    def read(self, reads: bool) -> None:
        """Go on reading, or stop it for a while. Meanwhile no PONG can be read, so none is wanted."""
        if reads is not self._reads and not self._ended:
            self._reads = reads
            self._unanswered = 0
            transport: Any = self.transport
            if reads:
                transport.resumeProducing()
            else:
                transport.pauseProducing()


class _Factory(Factory["_Connection"]):
    """Makes the connection to one server."""

    noisy = False

    def __init__(self, client: NatsClient, server: NatsServer) -> None:
        self._client = client
        self._server = server

    def buildProtocol(self, addr: object) -> _Connection:
        """Return the connection."""
        return _Connection(self._client, self._server)


Connect = Callable[[NatsServer, _Factory], "Deferred[Any]"]


class NatsClient:
    """Keeps a connection to one of the servers, which subscribes to one subject.

    ``received`` gets each payload, ``tls`` returns the creator of connections to a host (``startTLS``). ``connect``
    opens a connection to a server; the default is TCP.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        servers: Sequence[NatsServer],
        subject: str,
        received: Callable[[bytes], None],
        *,
        name: str,
        tls: Callable[[str], Any],
        connect: Connect | None = None,
    ) -> None:
        self.clock: IReactorTime = reactor
        self.tls = tls
        self._reactor = reactor
        self._connect = connect or self._connect_by_tcp
        self._subject = subject
        self._received = received
        self._name = name
        self._servers = random.sample(list(servers), len(servers))
        self._configured = len(servers)
        self._next = 0
        self._tried = 0  # servers of this outage
        self._told: set[str] = set()
        self._connection: _Connection | None = None
        self._attempt: Deferred[Any] | None = None
        self._retry: IDelayedCall | None = None
        self._stopped: Deferred[None] | None = None
        self._is_started = False
        #: connections that were lost, and messages of others that were too large
        self.losses = self.too_large = 0

    @property
    def is_connected(self) -> bool:
        """Whether a server takes messages now."""
        return self._connection is not None and self._connection.is_up

    @property
    def max_payload(self) -> int:
        """The most bytes of a message on the present connection."""
        return nats.LARGEST_PAYLOAD if self._connection is None else self._connection.max_payload

    def start(self) -> None:
        """Connect, and stay connected."""
        self._is_started = True
        self._try()

    def stop(self) -> Deferred[None]:
        """End the connection. Fires when it is closed."""
        self._is_started = False
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._connection is None:
            return succeed(None)
        stopped = self._stopped = Deferred()
        self._connection.close()
        return stopped

    def publish(self, subject: str, payload: bytes) -> bool:
        """Send a message. Return False if no server is connected, or it has no room for it."""
        connection = self._connection
        return connection is not None and connection.is_up and connection.publish(nats.publish(subject, payload))

    def read(self, reads: bool) -> None:
        """Go on reading, or stop it for a while."""
        if self._connection is not None:
            self._connection.read(reads)

    # --- connecting ---------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        server = self._servers[self._next % len(self._servers)]
        self._next += 1
        self._tried += 1
        self._attempt = self._connect(server, _Factory(self, server))
        self._attempt.addCallbacks(self._opened, self._not_opened, errbackArgs=(server,))

    def _connect_by_tcp(self, server: NatsServer, factory: _Factory) -> Deferred[Any]:
        endpoint = HostnameEndpoint(self._reactor, server.host, server.port, timeout=_CONNECTING)
        opened: Deferred[Any] = endpoint.connect(factory)
        return opened

    def _opened(self, connection: _Connection) -> None:
        self._attempt = None
        self._connection = connection

    def _not_opened(self, failure: Failure, server: NatsServer) -> None:
        self._attempt = None
        self._failed(server, failure.getErrorMessage())

    def _failed(self, server: NatsServer, why: str) -> None:
        if not self._is_started:
            return
        self._tell_once(f"NATS at {server}: {why.rstrip('.')}; the broker tries again", self._log.warn)
        rounds = max(self._tried - 1, 0) // len(self._servers)
        delay = _AT_ONCE if not rounds else min(_LEAST_DELAY * 2 ** (min(rounds, 10) - 1), _MOST_DELAY)
        self._retry = self.clock.callLater(delay * random.uniform(0.5, 1.0), self._try)

    # --- what a connection tells --------------------------------------------------------------------------------------

    def greeting(self, server: NatsServer) -> bytes:
        """Return the lines that log in and subscribe."""
        return greeting(server, self._name, self._subject)

    def learn(self, server: NatsServer, urls: Sequence[str]) -> None:
        """Note the other servers of a server's cluster. They are what it is: login, TLS, and the name for IP addresses.

        Only the newest ones are kept.
        """
        learned: list[NatsServer] = []
        configured = self._servers_configured()
        for url in urls:
            host, _, port = url.rpartition(":")
            host = host.strip("[]")
            if not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
                continue
            if (server.needs_tls and _is_address(host)) and not _is_address(server.host):
                continue  # its certificate names hosts; those of the configuration remain
            found = evolve(server, host=host, port=int(port))
            if found not in learned and not any((each.host, each.port) == (host, int(port)) for each in configured):
                learned.append(found)
        self._servers = [*configured, *learned[:_MOST_LEARNED]]

    def _servers_configured(self) -> list[NatsServer]:
        return self._servers[: self._configured]

    def connected(self, connection: _Connection) -> None:
        """Note that a server has accepted the login."""
        self._tell_once(f"connected to NATS at {connection.server}", self._log.info)

    def steady(self) -> None:
        """Note that the outage is over. Before, a server that ends each connection at once is not tried faster."""
        self._tried = 0
        self._told.clear()

    def forbidden(self, server: NatsServer, text: str) -> None:
        """Tell that a permission is missing."""
        family = self._subject.rpartition(".")[0]
        self._tell_once(
            f"NATS at {server}: {text[:200]}; allow the login to publish and to subscribe to {family}.>",
            self._log.error,
        )

    def _tell_once(self, sentence: str, log: Callable[..., None]) -> None:
        """Log a sentence once in an outage."""
        if sentence not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(sentence)
            log("{text}", text=sentence)

    def message(self, payload: bytes) -> None:
        """Hand on a message."""
        if self._is_started:
            self._received(payload)

    def lost(self, connection: _Connection, why: Down) -> None:
        """Try the next server."""
        self._connection = None
        self.losses += 1
        if self._stopped is not None:
            self._stopped.callback(None)
            self._stopped = None
        self._failed(connection.server, str(why))


def _explained(reason: Failure, server: NatsServer) -> str:
    """Return why a connection was lost, as a clause."""
    error = reason.value
    if isinstance(error, VerificationError):
        return f"its certificate is not for {server.host}"
    if isinstance(error, SSL.Error) and error.args and isinstance(error.args[0], list):
        return "TLS failed: " + ", ".join(each[-1] for each in error.args[0] if each)
    return reason.getErrorMessage()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
