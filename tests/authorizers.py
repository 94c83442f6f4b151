"""Authorizers for tests."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.anonymous import UnrestrictedAuthorizer
from holdfast.auth.interfaces import Grant, IAuthorizer, Principal


@implementer(IAuthorizer)
class Filtering(UnrestrictedAuthorizer):
    """Grants every subscription, but is asked for each delivery. Promises no answers."""

    checks_delivery = True
    epoch = None

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        return Grant.FILTERED

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        return Grant.FILTERED
