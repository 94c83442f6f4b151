"""From CONNECT to CONNACK: judged by the limits, the authenticator and the authorizer, then given a Session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.auth.interfaces import Principal
from holdfast.sessions.admission.authentication import Authentication, credentials_of
from holdfast.sessions.admission.handshake import Handshake, Refused
from holdfast.sessions.exchange.exchange import Exchange
from holdfast.sessions.exchange.publishing import failure_reason
from holdfast.tickets import StorageFailure
from holdfast.topics import is_sys
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Connect

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection


class Admission:
    """Judges the CONNECT of one Network Connection; each answer may come now or later."""

    _log = Logger()

    def __init__(self, connection: Connection, packet: Connect) -> None:
        """Raise :class:`Refused` for what the limits or the standard do not allow."""
        self._connection = connection
        self._handshake = Handshake(packet, connection.limits)
        self.client_id = self._handshake.client_id

    def begin(self) -> None:
        """Ask the authenticator, or begin the exchange of the Authentication Method the Client names."""
        if self._handshake.packet.properties.authentication_method is not None:
            Authentication(self._connection, self._handshake, self._authenticated).begin()
            return
        credentials = credentials_of(self._connection, self._handshake)
        answer = self._connection.services.authenticator.authenticate(credentials)
        if isinstance(answer, Deferred):
            self._connection.wait_for(answer, ReasonCode.SERVER_UNAVAILABLE, self._authenticated)
        else:
            self._authenticated(answer)

    def _authenticated(
        self, answer: Principal | ReasonCode, explanation: str = "the connection is not allowed"
    ) -> None:
        if not isinstance(answer, Principal):
            reject(self._connection, answer, explanation)
            return
        will = self._handshake.packet.will
        if will is None:
            self._admit(answer)
            return
        if is_sys(will.topic):
            self._will_decided(False, answer)
            return
        allowed = self._connection.services.authorizer.may_publish(answer, will.topic, will.qos, will.retain)
        if isinstance(allowed, Deferred):
            self._connection.wait_for(allowed, False, lambda result: self._will_decided(result, answer))
        else:
            self._will_decided(allowed, answer)

    def _will_decided(self, allowed: bool, principal: Principal) -> None:
        if allowed:
            self._admit(principal)
        else:
            reject(self._connection, ReasonCode.NOT_AUTHORIZED, "the Will Message is not allowed")

    def _admit(self, principal: Principal) -> None:
        """Attach the Session; CONNACK follows once that is durable."""
        connection = self._connection
        handshake = self._handshake
        session, present, ticket = connection.services.registry.connect(
            connection,
            principal,
            handshake.packet.clean_start,
            handshake.expiry_interval,
            handshake.window,
            handshake.packet.will,
        )
        exchange = Exchange(connection, session, handshake)
        connection.attach(exchange)
        connection.hold()

        def settled(failure: StorageFailure | None) -> None:
            if connection.is_closed:
                return
            if failure is not None:
                if not present:
                    connection.services.registry.rejected(session)
                reject(connection, failure_reason(failure), "the Session cannot be stored")
            else:
                connection.establish(handshake.keep_alive)
                connection.send(handshake.accepted(present))
                exchange.begin()
            connection.release()

        ticket.when_settled(settled)


def reject(connection: Connection, reason: ReasonCode, explanation: str) -> None:
    """Refuse a CONNECT: with CONNACK where the Client's protocol version has a code for the reason."""
    connection.counters.connections_refused += 1
    Admission._log.info(
        "{client!r} is refused: {reason}, {explanation}",
        client=connection.name,
        reason=reason.name,
        explanation=explanation,
    )
    connection.finish(connection.explanations.refusal(reason, explanation), None)


def admit(connection: Connection, packet: Connect) -> Admission | None:
    """Begin to judge a CONNECT; None when it is refused at once."""
    try:
        return Admission(connection, packet)
    except Refused as refused:
        reject(connection, refused.reason, str(refused))
        return None
