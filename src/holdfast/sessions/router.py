"""Routing: from a published Application Message to the Sessions whose subscriptions match it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.interfaces import IAuthorizer
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.session import Session
from holdfast.sessions.shared import SharedGroup
from holdfast.sessions.subscriptions import Subscription, SubscriptionTree
from holdfast.tickets import COMMITTED, CommitTicket
from holdfast.topics import split_shared

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen


@frozen
class _Match:
    """What a Session's matching subscriptions come to; ``own`` for messages it published itself (No Local)."""

    session: Session
    options: DeliveryOptions
    own: DeliveryOptions | None


_Route = tuple[tuple[_Match, ...], tuple[SharedGroup, ...]]

#: Topic Names whose routes are remembered, and the longest of them; all are forgotten when a subscription changes
_MOST_ROUTES = 65_536
_LONGEST_REMEMBERED = 200


def _merge(subscriptions: list[Subscription]) -> DeliveryOptions | None:
    """Merge overlapping subscriptions to one copy: the highest QoS, all Subscription Identifiers [MQTT5-3.3.4-2]."""
    if not subscriptions:
        return None
    return DeliveryOptions(
        max(subscription.qos for subscription in subscriptions),
        any(subscription.retain_as_published for subscription in subscriptions),
        tuple(s.identifier for s in subscriptions if s.identifier is not None),
    )


class Router:
    """Knows every subscription, and hands each message to the Sessions it matches and, if retained, to the retainer."""

    _log = Logger()

    def __init__(
        self,
        retained: IRetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        stop_publish_clear_msg: bool = False,
    ) -> None:
        self._retained = retained
        self._authorizer = authorizer
        self._counters = counters
        self._stop_clears = stop_publish_clear_msg
        self._tree: SubscriptionTree[Session] = SubscriptionTree()
        self._groups: dict[tuple[str, str], SharedGroup] = {}
        self._shared_tree: SubscriptionTree[SharedGroup] = SubscriptionTree()
        self._routes: dict[str, _Route] = {}
        #: topics that match the same subscriptions share one route
        self._alike: dict[tuple[int, ...], _Route] = {}

    def subscribe(self, session: Session, subscription: Subscription) -> None:
        """Add or replace a Session's subscription."""
        self._forget_routes()
        if subscription.group is None:
            self._tree.add(session, subscription)
            return
        key = (subscription.group, subscription.topic_filter)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SharedGroup()
            self._shared_tree.add(group, subscription)
        group.add(session, subscription)

    def unsubscribe(self, session: Session, topic_filter: str) -> None:
        """Remove a Session's subscription; ``topic_filter`` is as the Client wrote it."""
        self._forget_routes()
        name, inner = split_shared(topic_filter)
        if name is None:
            self._tree.remove(session, inner)
            return
        group = self._groups.get((name, inner))
        if group is not None:
            group.remove(session)
            if group.is_empty():
                self._shared_tree.remove(group, inner)
                del self._groups[name, inner]

    def publish(self, message: ApplicationMessage, origin: ChangeOrigin) -> tuple[CommitTicket, bool]:
        """Retain the message if it asks for it, and route it.

        Returns the ticket of what must be durable before it is acknowledged, and whether anyone was subscribed.
        Raises ``RetainRefused``, and then has not routed it either.
        """
        ticket = COMMITTED
        if message.retain:
            ticket = self._retained.retain(message, origin)
            if self._stop_clears and not message.payload:
                return ticket, True
        return ticket, self.route(message)

    def route(self, message: ApplicationMessage) -> bool:
        """Hand the message to every matching Session; return whether there was one."""
        route = self._routes.get(message.topic)
        if route is None:
            route = self._find(message.topic)
        matches, groups = route
        outgoing: OutgoingMessage | None = None
        for match in matches:
            options: DeliveryOptions | None = match.options
            if message.client_id == match.session.client_id:
                options = None if match.session.limits.ignore_loop_deliver else match.own
            if options is not None:
                if outgoing is None:
                    outgoing = OutgoingMessage(message)
                self._deliver(match.session, outgoing, options)
        for group in groups:
            chosen = group.choose()
            if chosen is not None:
                session, subscription = chosen
                if outgoing is None:
                    outgoing = OutgoingMessage(message)
                merged = _merge([subscription])
                assert merged is not None
                self._deliver(session, outgoing, merged)
        return bool(matches or groups)

    def _deliver(self, session: Session, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        if not self._authorizer.checks_delivery:
            session.deliver(outgoing, options)
            return
        answer = self._authorizer.may_receive(session.principal, outgoing.message)
        if isinstance(answer, Deferred):
            answer.addErrback(self._denied_by_error)
        if session.withheld.add(answer, lambda: session.deliver(outgoing, options)) is False:
            self._counters.messages_dropped_not_authorized += 1

    def _denied_by_error(self, failure: Failure) -> bool:
        """Deny when the authorizer fails."""
        self._log.error("authorizing a delivery failed, so it is denied: {error}", error=failure.getErrorMessage())
        return False

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._alike.clear()

    def _find(self, topic: str) -> _Route:
        """Find the topic's route, and remember it."""
        plain = self._tree.match(topic)
        shared = self._shared_tree.match(topic)
        # Sessions, groups and subscriptions live at least as long as the routes are remembered.
        key = tuple(map(id, chain(chain.from_iterable(plain), chain.from_iterable(shared))))
        route = self._alike.get(key)
        if route is None:
            route = self._alike[key] = self._merged(plain, shared)
        if len(topic) <= _LONGEST_REMEMBERED:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def _merged(
        self, plain: list[tuple[Session, Subscription]], shared: list[tuple[SharedGroup, Subscription]]
    ) -> _Route:
        by_session: dict[Session, list[Subscription]] = {}
        for session, subscription in plain:
            by_session.setdefault(session, []).append(subscription)
        matches = []
        for session, subscriptions in by_session.items():
            options = _merge(subscriptions)
            assert options is not None
            foreign = [subscription for subscription in subscriptions if not subscription.no_local]
            own = options if len(foreign) == len(subscriptions) else _merge(foreign)
            matches.append(_Match(session, options, own))
        return tuple(matches), tuple(group for group, _ in shared)
