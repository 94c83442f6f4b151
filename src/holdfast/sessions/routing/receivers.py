"""Which Sessions receive messages without a question to the authorizer, and which it is asked about.

How it works. The authorizer grants each subscription once, at SUBSCRIBE, and again when its epoch or the Principal of
the Session changes. With GRANTED no delivery needs a question. With FILTERED the authorizer is asked about each topic,
and the routing table remembers the answers as long as the epoch lasts. A Session whose subscriptions are to be granted
anew is asked about like one with FILTERED subscriptions: so no message leaves because of a grant that is out of date.

A Session of an earlier process is an exception. Only its User Name is stored, and its Client may have had further
rights, for example by its group. So its messages are queued without a question. When the Client is back, each of them
is asked about before it is sent.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted.python.failure import Failure

from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.log.lasting_failure import LastingFailure
from holdfast.messages import ApplicationMessage
from holdfast.sessions.session.permissions import RESTORED
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription


class Receivers:
    """Asks the authorizer about deliveries. An authorizer that fails denies."""

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer
        self._report = LastingFailure("authorizing deliveries", "so they are denied", (Exception,))

    def are_asked_about(self, session: Session, subscriptions: Collection[Subscription]) -> bool:
        """Tell whether the authorizer has to allow what a Session gets for these subscriptions, which all match."""
        granted_in = session.granted_in
        if granted_in is RESTORED:
            return False
        return granted_in != self._authorizer.epoch or all(subscription.filtered for subscription in subscriptions)

    def may_receive(self, principal: Principal, topic: str) -> bool:
        """Tell whether a Principal may receive messages of a topic, in the present epoch."""
        try:
            allowed = self._authorizer.may_receive(principal, ApplicationMessage(topic, b""))
        except Exception:  # noqa: BLE001 - the publisher is not to blame
            self._report.failed(Failure())
            return False
        self._report.succeeded()
        return allowed is True
