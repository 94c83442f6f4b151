"""Enhanced authentication [MQTT5-4.12]: AUTH packets between a Client and the Authentication Method that it names.

It takes place before CONNACK (:class:`Authentication`) and again whenever the Client asks (:class:`Reauthentication`).
The method is a list of steps: each takes the Client's Authentication Data, and answers with a challenge, with the
Principal or with a refusal, now or later. An AUTH packet is due only while a challenge waits for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall

from holdfast.identity.failed_logins import FAILED_LOGIN
from holdfast.identity.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    Principal,
    in_time,
)
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import Actions
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.handshake import Handshake
from holdfast.wire import Properties, ProtocolError, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import PERMITTED

#: packet types, as in the table of permitted Reason Codes
CONNACK, DISCONNECT = 2, 14

#: the Reason Codes that an AUTH packet may have now, each with the function that takes its Authentication Data
DueSteps = dict[int, Callable[[bytes | None], None]]


class TakesDecision(Protocol):
    """Takes the outcome of an authentication."""

    def __call__(self, answer: Principal | ReasonCode, explanation: str = ...) -> None:
        """Admit the Principal, or refuse with this Reason Code."""


def credentials_of(link: Connection, handshake: Handshake) -> Credentials:
    """Return the credentials in the Client's CONNECT."""
    packet = handshake.packet
    return Credentials(
        handshake.client_id, packet.username, packet.password, link.listener, packet.protocol_version, link.peer,
        link.certificate,
    )  # fmt: skip


class _Dialogue:
    """The AUTH packets of one Client and the answers to them.

    ``_due`` is the state. It is empty while the method works on its next answer, since no AUTH is due then.
    """

    def __init__(self, link: Connection, parts: BrokerParts, handshake: Handshake) -> None:
        self._link = link
        self._parts = parts
        self._handshake = handshake
        self._method = handshake.packet.properties.authentication_method
        self._due: DueSteps = {}

    def take(self, packet: p.Auth) -> None:
        """Act on an AUTH packet. It names the same method as CONNECT [MQTT5-4.12.0-5], [MQTT5-4.12.1-1]."""
        if packet.properties.authentication_method != self._method:
            raise ProtocolError("AUTH has another Authentication Method than CONNECT, or none")
        act = self._due.get(packet.reason_code)
        if act is None:
            raise ProtocolError(f"AUTH with Reason Code 0x{packet.reason_code:02x} is out of place")
        act(packet.properties.authentication_data)

    def _begin(self, data: bytes | None) -> None:
        """Begin an exchange with the Client's first Authentication Data."""
        authenticator = self._parts.enhanced_authenticator
        exchange = None
        if authenticator is not None and self._method is not None:
            exchange = authenticator.begin(self._method, credentials_of(self._link, self._handshake))
        if exchange is None:  # [MQTT5-4.12.0-1]
            self._refused(ReasonCode.BAD_AUTHENTICATION_METHOD, "this Authentication Method is not offered")
        else:
            self._step(exchange, data)

    def _step(self, exchange: IAuthenticationExchange, data: bytes | None) -> None:
        self._due = {}
        # A step may answer at once, answer with a Deferred, or raise. maybeDeferred turns all three into a Deferred.
        step = cast("Callable[[bytes | None], Deferred[AuthenticationStep]]", exchange.step)
        self._wait_for(maybeDeferred(step, data), lambda answer: self._stepped(exchange, answer))

    def _stepped(self, exchange: IAuthenticationExchange, answer: AuthenticationStep) -> None:
        if isinstance(answer, Challenge):
            self._due = {ReasonCode.CONTINUE_AUTHENTICATION: lambda data: self._step(exchange, data)}
            self._send(ReasonCode.CONTINUE_AUTHENTICATION, answer.data)  # [MQTT5-4.12.0-2]
        elif isinstance(answer, Authenticated):
            self._authenticated(answer)
        else:
            self._handshake.claimed_username = exchange.username
            self._link.client_log.info("its authentication failed", exchange.explanation)
            self._refused(answer, "the authentication failed")

    def _send(self, reason: ReasonCode, data: bytes | None) -> None:
        properties = Properties(authentication_method=self._method, authentication_data=data)
        packet = encode(p.Auth(reason, properties), 5)
        if self._fits(packet):
            self._link.send(packet)

    def _fits(self, packet: bytes) -> bool:
        """Tell whether the Client accepts a packet of this size [MQTT5-3.1.2-24]; refuse the Client if not."""
        if self._link.explanations.fits(packet):
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
    """Authentication before CONNACK. Only AUTH and DISCONNECT may come meanwhile [MQTT5-3.1.2-30]."""

    def __init__(self, link: Connection, parts: BrokerParts, handshake: Handshake, decided: TakesDecision) -> None:
        super().__init__(link, parts, handshake)
        self._decided = decided

    def begin(self) -> None:
        """Begin the exchange of the Authentication Method in CONNECT."""
        self._link.expect(Actions({p.Auth: self.take, p.Disconnect: self._disconnect}))
        self._begin(self._handshake.packet.properties.authentication_data)

    def _disconnect(self, _packet: p.Disconnect) -> None:
        self._link.finish(b"", None, "it sent DISCONNECT during its authentication")

    def _wait_for(self, answer: Deferred[AuthenticationStep], then: Callable[[AuthenticationStep], None]) -> None:
        self._link.ask(answer, ReasonCode.SERVER_UNAVAILABLE, then)

    def _authenticated(self, answer: Authenticated) -> None:
        self._handshake.authentication_data = answer.data
        if self._fits(self._handshake.accepted(False)):
            self._decided(answer.principal)

    def _refused(self, reason: ReasonCode, explanation: str) -> None:
        """Answer with CONNACK and close [MQTT5-4.12.0-4]."""
        self._decided(failure_code(reason, CONNACK), explanation)


class Reauthentication(_Dialogue):
    """Authentication of a connected Client, at its request. Other packets are handled meanwhile [MQTT5-4.12.1]."""

    def __init__(self, link: Connection, parts: BrokerParts, handshake: Handshake, session: Session) -> None:
        super().__init__(link, parts, handshake)
        self._session = session
        self._timer: IDelayedCall | None = None
        self._due = self._first_step

    def stop(self) -> None:
        """Cancel the timer: the authentication or the connection is over."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def close(self) -> None:
        """Expect nothing any more: the connection is over."""
        self.stop()
        self._due = {}

    @property
    def _first_step(self) -> DueSteps:
        return {ReasonCode.RE_AUTHENTICATE: self._again}

    def _again(self, data: bytes | None) -> None:
        self._timer = self._parts.clock.callLater(self._link.limits.idle_timeout, self._late)
        self._begin(data)

    def _wait_for(self, answer: Deferred[AuthenticationStep], then: Callable[[AuthenticationStep], None]) -> None:
        self._link.when_answered(in_time(answer, self._parts.clock), ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, then)

    def _authenticated(self, answer: Authenticated) -> None:
        if answer.principal.username != self._session.principal.username:
            self._refused(ReasonCode.NOT_AUTHORIZED, "a re-authentication cannot change the user")
            return
        self.stop()
        self._parts.registry.renewed(self._session, answer.principal)
        self._due = self._first_step
        self._send(ReasonCode.SUCCESS, answer.data)

    def _refused(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection with DISCONNECT [MQTT5-4.12.1-2]. That is its only delay."""
        if reason in FAILED_LOGIN:
            self._parts.failures.failed(self._link.peer, self._handshake.claimed_username)
        self._link.close(failure_code(reason, DISCONNECT), explanation)

    def _late(self) -> None:
        with self._link.guard:
            self._refused(ReasonCode.NOT_AUTHORIZED, "the re-authentication was not completed in time")


def failure_code(reason: ReasonCode, packet_type: int) -> ReasonCode:
    """Return the Reason Code if this packet type may carry it as a failure, else Not authorized."""
    permitted = reason >= ReasonCode.UNSPECIFIED_ERROR and reason in PERMITTED[packet_type]
    return reason if permitted else ReasonCode.NOT_AUTHORIZED
