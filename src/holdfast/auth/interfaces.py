"""The interfaces of authentication and authorization, and the values that cross them."""

from __future__ import annotations

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from holdfast.messages import ApplicationMessage
from holdfast.wire.reasons import ReasonCode


@frozen
class Credentials:
    """What a Client presents in CONNECT, and the listener it came through."""

    client_id: str
    username: str | None
    password: bytes | None
    listener: str
    protocol_version: int


@frozen
class Principal:
    """Who a Network Connection acts for, once authenticated."""

    client_id: str
    username: str | None


class IAuthenticator(Interface):
    """Decides who may connect."""

    def authenticate(credentials: Credentials) -> Principal | ReasonCode | Deferred[Principal | ReasonCode]:
        """Return the Principal, or the Reason Code of the refusal, now or later."""


@frozen
class Challenge:
    """The exchange goes on: what the Server says next to the Client (None for no Authentication Data)."""

    data: bytes | None


@frozen
class Authenticated:
    """The exchange is over: who the Client is, and the Server's last word to it."""

    principal: Principal
    data: bytes | None = None


#: what an exchange answers to the Client's Authentication Data
AuthenticationStep = Challenge | Authenticated | ReasonCode


class IAuthenticationExchange(Interface):
    """One run of an Authentication Method with one Client."""

    def step(data: bytes | None) -> AuthenticationStep | Deferred[AuthenticationStep]:
        """Take the Client's next Authentication Data; return what follows, or the Reason Code of the refusal.

        Not called again before it has answered, nor after it has answered with anything but a Challenge. Whatever a
        Client may send, it is answered: an exception counts as a failure of this broker.
        """


class IEnhancedAuthenticator(Interface):
    """Decides who may connect by Authentication Methods, each an exchange of AUTH packets [MQTT5-4.12]."""

    def begin(method: str, credentials: Credentials) -> IAuthenticationExchange | None:
        """Return a new exchange, None where this Authentication Method is not offered.

        Also called for each re-authentication of a Client, with the same method and credentials as before.
        """


class IAuthorizer(Interface):
    """Decides what a Principal may do. Every method answers True or False, now or later."""

    checks_delivery = Attribute("False when may_receive is always True, so that it need not be asked per message.")

    def may_publish(principal: Principal, topic: str, qos: int, retain: bool) -> bool | Deferred[bool]:
        """May it publish this (also as a Will Message)?"""

    def may_subscribe(principal: Principal, topic_filter: str, qos: int) -> bool | Deferred[bool]:
        """May it subscribe to this Topic Filter (a shared subscription's without its $share prefix)?"""

    def may_receive(principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """May this Application Message be delivered to it? Of a replayed one it is not said who has published it."""
