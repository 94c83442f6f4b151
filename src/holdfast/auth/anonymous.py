"""A broker without authentication: all clients are admitted, and may do everything."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.interfaces import Credentials, Grant, IAuthenticator, IAuthorizer, Principal
from holdfast.messages import ApplicationMessage


@implementer(IAuthenticator)
class AnonymousAuthenticator:
    """Admits every Client under its own name. Used if no authentication is configured."""

    def authenticate(self, credentials: Credentials) -> Principal:
        """Return the Principal with the Client's own names."""
        return Principal(
            credentials.client_id, credentials.username, listener=credentials.listener, address=credentials.address
        )


@implementer(IAuthorizer)
class UnrestrictedAuthorizer:
    """Allows everything to everyone."""

    checks_delivery = False
    effort = 0
    epoch: object = 0
    keeping: str | None = None
    keeps_the_published = True

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

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Know no bound."""
        return None
