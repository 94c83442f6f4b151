"""Clients without authentication: all are admitted, or only the clients of some listeners."""

from __future__ import annotations

from collections.abc import Container

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.interfaces import Credentials, Grant, IAuthenticator, IAuthorizer, Principal
from holdfast.messages import ApplicationMessage
from holdfast.wire.reasons import ReasonCode


@implementer(IAuthenticator)
class AnonymousAuthenticator:
    """Admits every Client under its own name. Used if no authentication is configured."""

    def authenticate(self, credentials: Credentials) -> Principal:
        """Return the Principal with the Client's own names."""
        return Principal(credentials.client_id, credentials.username)


@implementer(IAuthenticator)
class GuestAuthenticator:
    """Admits Clients that name no Authentication Method, through some listeners only.

    Used if authentication is configured. A guest has no User Name: it could be the name of a user, without a proof.
    """

    def __init__(self, listeners: Container[str]) -> None:
        self._listeners = listeners

    def authenticate(self, credentials: Credentials) -> Principal | ReasonCode:
        """Return the Principal of a guest, or the refusal."""
        if credentials.listener in self._listeners:
            return Principal(credentials.client_id, None)
        return ReasonCode.NOT_AUTHORIZED


@implementer(IAuthorizer)
class UnrestrictedAuthorizer:
    """Allows everything to everyone."""

    checks_delivery = False
    epoch: object = 0

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Allow every PUBLISH and Will Message."""
        return True

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        """Allow every subscription."""
        return Grant.GRANTED

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Allow every delivery."""
        return True

    def may_keep(self, username: str | None, client_id: str | None, topic: str) -> bool:
        """Keep every retained message."""
        return True

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        """Allow every retained message."""
        return Grant.GRANTED
