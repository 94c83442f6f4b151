"""Everyone may connect and do everything: the posture of a broker reachable from its own machine only."""

from __future__ import annotations

from zope.interface import implementer

from holdfast.interfaces import Credentials, IAuthenticator, IAuthorizer, Principal
from holdfast.messages import ApplicationMessage


@implementer(IAuthenticator)
class AnonymousAuthenticator:
    """Admits every Client under the name it gives."""

    def authenticate(self, credentials: Credentials) -> Principal:
        """Return the Principal the Client says it is."""
        return Principal(credentials.client_id, credentials.username)


@implementer(IAuthorizer)
class UnrestrictedAuthorizer:
    """Allows everything to everyone."""

    checks_delivery = False

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool) -> bool:
        """Allow every PUBLISH and Will Message."""
        return True

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> bool:
        """Allow every subscription."""
        return True

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool:
        """Allow every delivery."""
        return True
