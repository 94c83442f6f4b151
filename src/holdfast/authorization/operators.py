"""The permissions of operators at the console of the dashboard, before those of Clients are asked."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast.auth.interfaces import Grant, IAuthorizer, OperatorPrincipal, Principal
from holdfast.messages import ApplicationMessage


class OperatorsFirst:
    """Answers about operators itself, and asks the authorizer of Clients about everybody else."""

    def __init__(self, clients: IAuthorizer) -> None:
        self._clients = clients

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Tell whether the Principal may publish this, also as a Will Message."""
        if type(principal) is OperatorPrincipal:
            return principal.publishes
        answer: bool | Deferred[bool] = self._clients.may_publish(principal, topic, qos, retain, clears)
        return answer

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        """Tell whether the Principal may subscribe to this Topic Filter."""
        if type(principal) is OperatorPrincipal:
            return Grant.GRANTED
        answer: Grant | Deferred[Grant] = self._clients.may_subscribe(principal, topic_filter, qos)
        return answer

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Tell whether the Principal may receive this message."""
        if type(principal) is OperatorPrincipal:
            return True
        answer: bool | Deferred[bool] = self._clients.may_receive(principal, message)
        return answer

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        """Tell which of the retained messages that match a Topic Filter the Principal may receive now."""
        if type(principal) is OperatorPrincipal:
            return Grant.GRANTED
        grant: Grant = self._clients.receivable(principal, topic_filter)
        return grant

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all that the Principal may receive of a Topic Filter; None for any."""
        if type(principal) is OperatorPrincipal:
            return None
        filters: tuple[str, ...] | None = self._clients.receivable_filters(principal, topic_filter)
        return filters
