"""Authorizers for tests."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import matches, overlap
from holdfast.identity.interfaces import Grant, IAuthorizer, Principal, UnrestrictedAuthorizer


@implementer(IAuthorizer)
class Filtering(UnrestrictedAuthorizer):
    """Grants every subscription, but is asked for each delivery. Promises no answers."""

    checks_delivery = True
    epoch = None

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        return Grant.FILTERED

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        return Grant.FILTERED


@implementer(IAuthorizer)
class Permissions(UnrestrictedAuthorizer):
    """Allows everything but what a test denies, by action, Topic Filter and, if given, address of the Principal.

    A subscription is filtered if some of the topics that it matches may not be received.
    """

    checks_delivery = True

    def __init__(self) -> None:
        self._changes = 1
        self.asked: list[tuple[str, str]] = []
        self._denied: list[tuple[str, str, str | None]] = []

    @property
    def epoch(self) -> object:  # type: ignore[override]
        """The number of changes."""
        return self._changes

    def deny(self, action: str, topic_filter: str, address: str | None = None) -> None:
        """Deny an action from now on: publish, retain, clear, subscribe or receive."""
        self._denied.append((action, topic_filter, address))
        self._changes += 1

    def allow_all(self) -> None:
        """Deny nothing from now on."""
        self._denied.clear()
        self._changes += 1

    def _denials(self, action: str, principal: Principal) -> list[str]:
        return [
            topic_filter
            for denied, topic_filter, address in self._denied
            if denied == action and address in (None, principal.address)
        ]

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        self.asked.append(("publish", topic))
        action = "clear" if clears else "retain" if retain else "publish"
        return not any(matches(denied, topic) for denied in self._denials(action, principal))

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        self.asked.append(("subscribe", topic_filter))
        if any(overlap(denied, topic_filter) for denied in self._denials("subscribe", principal)):
            return Grant.REFUSED
        return self.receivable(principal, topic_filter)

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool:
        self.asked.append(("receive", message.topic))
        return not any(matches(denied, message.topic) for denied in self._denials("receive", principal))

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        filtered = any(overlap(denied, topic_filter) for denied in self._denials("receive", principal))
        return Grant.FILTERED if filtered else Grant.GRANTED


@implementer(IAuthorizer)
class Listed(UnrestrictedAuthorizer):
    """Answers by lists of Topic Filters: what each Client Identifier may receive, and each User Name retain.

    A name without a list has all topics. Counts the questions. ``tells_filters``: the lists are told to replays.
    """

    checks_delivery = True

    def __init__(self, receive: dict[str, list[str]], retain: dict[str, list[str]], tells_filters: bool = True) -> None:
        self.tells_filters = tells_filters
        self.asked_to_keep = self.asked_to_receive = 0
        self.change(receive, retain)

    def change(self, receive: dict[str, list[str]], retain: dict[str, list[str]]) -> None:
        self.receive, self.retain = receive, retain
        self.epoch = object()

    def receives(self, client_id: str, topic: str) -> bool:
        return any(matches(one, topic) for one in self.receive.get(client_id, ["#"]))

    def keeps(self, username: str | None, topic: str) -> bool:
        return any(matches(one, topic) for one in self.retain.get(username or "", ["#"]))

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        return not retain or self.keeps(principal.username, topic)

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        return self.receivable(principal, topic_filter)

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool:
        self.asked_to_receive += 1
        return self.receives(principal.client_id, message.topic)

    def may_keep(self, username: str | None, client_id: str | None, topic: str) -> bool:
        self.asked_to_keep += 1
        return self.keeps(username, topic)

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        filters = self.receive.get(principal.client_id, ["#"])
        if "#" in filters or topic_filter in filters:
            return Grant.GRANTED
        return Grant.FILTERED if filters else Grant.REFUSED

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        return tuple(self.receive.get(principal.client_id, ["#"])) if self.tells_filters else None
