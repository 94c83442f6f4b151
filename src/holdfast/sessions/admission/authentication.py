"""Enhanced authentication [MQTT5-4.12]: AUTH packets between a Client and the exchange of the method it names.

Once before CONNACK (:class:`Authentication`), and again whenever the Client asks (:class:`Reauthentication`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall

from holdfast.auth.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    Principal,
)
from holdfast.sessions.admission.handshake import Handshake
from holdfast.wire import Properties, ProtocolError, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import PERMITTED

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection

#: packet types, as the table of permitted Reason Codes has them
_CONNACK, _DISCONNECT = 2, 14

#: which Reason Codes an AUTH packet from the Client may have now, and who takes its Authentication Data
Due = dict[int, Callable[[bytes | None], None]]


class Decided(Protocol):
    """Takes the outcome of an authentication."""

    def __call__(self, answer: Principal | ReasonCode, explanation: str = ...) -> None:
        """Admit the Principal, or refuse with this Reason Code."""


def credentials_of(connection: Connection, handshake: Handshake) -> Credentials:
    """Return what the Client presented in its CONNECT."""
    packet = handshake.packet
    return Credentials(
        handshake.client_id, packet.username, packet.password, connection.listener, packet.protocol_version
    )


class _Dialogue:
    """AUTH packets of one Client in turn; ``_due`` is the state: no AUTH is due while the Server's turn lasts."""

    def __init__(self, connection: Connection, handshake: Handshake) -> None:
        self._connection = connection
        self._handshake = handshake
        self._method = handshake.packet.properties.authentication_method
        self._due: Due = {}

    def take(self, packet: p.Auth) -> None:
        """Act on an AUTH packet. Its method is always that of the CONNECT [MQTT5-4.12.0-5], [MQTT5-4.12.1-1]."""
        if packet.properties.authentication_method != self._method:
            raise ProtocolError("AUTH has another Authentication Method than CONNECT, or none")
        act = self._due.get(packet.reason_code)
        if act is None:
            raise ProtocolError(f"AUTH with Reason Code 0x{packet.reason_code:02x} is out of place")
        act(packet.properties.authentication_data)

    def _begin(self, data: bytes | None) -> None:
        """Begin an exchange with the Client's first Authentication Data."""
        authenticator = self._connection.services.enhanced_authenticator
        exchange = None
        if authenticator is not None and self._method is not None:
            exchange = authenticator.begin(self._method, credentials_of(self._connection, self._handshake))
        if exchange is None:  # [MQTT5-4.12.0-1]
            self._refused(ReasonCode.BAD_AUTHENTICATION_METHOD, "this Authentication Method is not offered")
        else:
            self._step(exchange, data)

    def _step(self, exchange: IAuthenticationExchange, data: bytes | None) -> None:
        self._due = {}
        step = cast("Callable[[bytes | None], Deferred[AuthenticationStep]]", exchange.step)  # now, or as a Deferred
        self._wait_for(maybeDeferred(step, data), lambda answer: self._stepped(exchange, answer))

    def _stepped(self, exchange: IAuthenticationExchange, answer: AuthenticationStep) -> None:
        if isinstance(answer, Challenge):
            self._due = {ReasonCode.CONTINUE_AUTHENTICATION: lambda data: self._step(exchange, data)}
            self._send(ReasonCode.CONTINUE_AUTHENTICATION, answer.data)  # [MQTT5-4.12.0-2]
        elif isinstance(answer, Authenticated):
            self._authenticated(answer)
        else:
            self._refused(answer, "the authentication failed")

    def _send(self, reason: ReasonCode, data: bytes | None) -> None:
        properties = Properties(authentication_method=self._method, authentication_data=data)
        packet = encode(p.Auth(reason, properties), 5)
        if self._fits(packet):
            self._connection.send(packet)

    def _fits(self, packet: bytes) -> bool:
        """Whether the Client takes a packet of this length [MQTT5-3.1.2-24]; what it must have and cannot ends it."""
        if self._connection.explanations.fits(packet):
            return True
        self._refused(
            ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "the Maximum Packet Size is too small for this authentication"
        )
        return False

    def _wait_for(self, answer: Deferred[AuthenticationStep], then: Callable[[AuthenticationStep], None]) -> None:
        raise NotImplementedError

    def _authenticated(self, answer: Authenticated) -> None:
        raise NotImplementedError

    def _refused(self, reason: ReasonCode, explanation: str) -> None:
        raise NotImplementedError


class Authentication(_Dialogue):
    """From CONNECT to CONNACK: of all packets, only AUTH and DISCONNECT may come meanwhile [MQTT5-3.1.2-30]."""

    def __init__(self, connection: Connection, handshake: Handshake, decided: Decided) -> None:
        super().__init__(connection, handshake)
        self._decided = decided

    def begin(self) -> None:
        """Begin the exchange of the Authentication Method in CONNECT."""
        self._connection.expect({p.Auth: self.take, p.Disconnect: self._disconnect})
        self._begin(self._handshake.packet.properties.authentication_data)

    def _disconnect(self, _packet: p.Disconnect) -> None:
        self._connection.finish(b"", None)

    def _wait_for(self, answer: Deferred[AuthenticationStep], then: Callable[[AuthenticationStep], None]) -> None:
        self._connection.wait_for(answer, ReasonCode.SERVER_UNAVAILABLE, then)

    def _authenticated(self, answer: Authenticated) -> None:
        self._handshake.authentication_data = answer.data
        if self._fits(self._handshake.accepted(False)):
            self._decided(answer.principal)

    def _refused(self, reason: ReasonCode, explanation: str) -> None:
        """Answer with CONNACK and close [MQTT5-4.12.0-4]."""
        self._decided(_failure(reason, _CONNACK), explanation)


class Reauthentication(_Dialogue):
    """An exchange the Client asks for once it is connected; all other packets go on meanwhile [MQTT5-4.12.1]."""

    def __init__(self, connection: Connection, handshake: Handshake, principal: Principal) -> None:
        super().__init__(connection, handshake)
        self._principal = principal
        self._timer: IDelayedCall | None = None
        self._due = self._at_rest

    @property
    def actions(self) -> dict[type[Any], Callable[[Any], None]]:
        """Which packets this takes: none where CONNECT had no Authentication Method [MQTT5-4.12.0-7]."""
        return {} if self._method is None else {p.Auth: self.take}

    def stop(self) -> None:
        """The exchange is over, or the connection is."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    @property
    def _at_rest(self) -> Due:
        return {ReasonCode.RE_AUTHENTICATE: self._again}

    def _again(self, data: bytes | None) -> None:
        connection = self._connection
        self._timer = connection.services.clock.callLater(connection.limits.idle_timeout, self._late)
        self._begin(data)

    def _wait_for(self, answer: Deferred[AuthenticationStep], then: Callable[[AuthenticationStep], None]) -> None:
        self._connection.when_answered(answer, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, then)

    def _authenticated(self, answer: Authenticated) -> None:
        if answer.principal != self._principal:
            self._refused(ReasonCode.NOT_AUTHORIZED, "a re-authentication cannot change the user")
            return
        self.stop()
        self._due = self._at_rest
        self._send(ReasonCode.SUCCESS, answer.data)

    def _refused(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection with DISCONNECT [MQTT5-4.12.1-2]."""
        self._connection.close(_failure(reason, _DISCONNECT), explanation)

    def _late(self) -> None:
        self._refused(ReasonCode.NOT_AUTHORIZED, "the re-authentication was not completed in time")


def _failure(reason: ReasonCode, packet_type: int) -> ReasonCode:
    """Return the Reason Code where this packet may carry it as a failure, else Not authorized."""
    permitted = reason >= ReasonCode.UNSPECIFIED_ERROR and reason in PERMITTED[packet_type]
    return reason if permitted else ReasonCode.NOT_AUTHORIZED
