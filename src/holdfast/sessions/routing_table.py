"""The routing table: all subscriptions, and for each Topic Name the route to its Sessions.

How it works. A *route* has one entry for each Session with matching subscriptions, with their options merged, and the
groups of the matching shared subscriptions. To find a route, the table walks two trees, and remembers the routes of
recent topics. Topics that match the same subscriptions share one route: ten thousand sensors below ``site/#`` cost a
dictionary entry each, and one route.

Devices come and go with subscriptions of their own, so a change of a subscription forgets little: the routes of the
topics that its Topic Filter matches, and of a subscription that is no more, the routes with it. Publishers that
remember routes ask :meth:`RoutingTable.changed_since` for the filters of later changes.

The routes contain the permissions of the authorizer's present epoch, so that a message of a known topic asks nobody.
When the epoch changes, the table forgets all routes.

Each route has a number that no other route ever gets. Publishers remember this number and not the route: so they never
use a forgotten route, and keep no Session in memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from itertools import chain, compress, count, islice

from attrs import evolve, frozen
from twisted.python.failure import Failure

from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.core.topics import TopicTree, before_wildcard, matches, split_shared
from holdfast.identity.interfaces import IAuthorizer, Principal
from holdfast.sessions.counters import Holdings
from holdfast.sessions.delivery.outgoing import DeliveryOptions
from holdfast.sessions.delivery.permissions import RESTORED
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.state import Subscription
from holdfast.watch.log import LastingFailure


@frozen
class Match:
    """A Session with the merged options of its matching subscriptions.

    ``own`` are the options for messages that the Session's Client published itself: without No Local subscriptions.
    ``checked`` tells that the authorizer has to allow each delivery.
    """

    session: Session
    options: DeliveryOptions
    own: DeliveryOptions | None
    checked: bool = False


@frozen
class Route:
    """The Sessions and the groups of shared subscriptions that get the messages of a topic.

    ``withheld`` is how many other Sessions match it, but may not receive it. ``judged`` tells that a delivery may have
    to wait for the authorizer, or for earlier ones that do.
    """

    matches: tuple[Match, ...]
    groups: tuple[SharedGroup, ...]
    number: int
    withheld: int
    judged: bool


#: the most Topic Names whose routes are remembered, and the most characters of such a name
_MOST_ROUTES = 65_536
_LONGEST_REMEMBERED = 200
#: The memory of all routes in bytes; beyond it, the oldest are forgotten until a quarter is free.
_MOST_BYTES = 20 << 20
#: the bytes of a route, and of each Session in it; the same for a route of those Sessions that may receive a topic
_ROUTE, _MATCH, _PERMITTED_ROUTE, _PERMITTED = 900, 120, 300, 10
#: A change forgets the routes of the topics that its filter matches. If more topics are remembered than it may look at,
#: or more begin like the filter than it may compare, it forgets those of all topics: they are found again.
_MOST_LOOKED_AT, _MOST_COMPARED = 500, 50
#: A subscription that is no more takes the routes with it. If they have more Sessions together, all routes go.
_MOST_FORGOTTEN_SINGLY = 10_000
#: the filters of so many changes are remembered
_MOST_CHANGES = 256


class _Found:
    """A route that was found, the subscriptions that it was found with, and the routes made of it.

    ``allowed`` has its Sessions for deliveries that are allowed. ``permitted`` has the routes of some of these: by the
    permissions of its Sessions, a byte for each.
    """

    __slots__ = ("allowed", "key", "permitted", "route", "subscriptions")

    def __init__(self, route: Route, key: tuple[int, ...], subscriptions: list[Subscription]) -> None:
        self.route = route
        self.key = key
        self.subscriptions = subscriptions
        self.allowed: tuple[Match, ...] | None = None
        self.permitted: dict[bytes, Route] = {}

    @property
    def size(self) -> int:
        """The bytes of its routes."""
        permitted = _PERMITTED_ROUTE * len(self.permitted) + _PERMITTED * sum(map(len, self.permitted))
        return _ROUTE + _MATCH * len(self.subscriptions) + permitted


def merged(subscriptions: list[Subscription]) -> DeliveryOptions:
    """Merge overlapping subscriptions to one copy: the highest QoS, all Subscription Identifiers [MQTT5-3.3.4-2].

    The copy is conflated if all of them ask for it, with the shortest interval.
    """
    return DeliveryOptions(
        max(subscription.qos for subscription in subscriptions),
        any(subscription.retain_as_published for subscription in subscriptions),
        tuple(s.identifier for s in subscriptions if s.identifier is not None),
        min(subscription.conflate for subscription in subscriptions),
    )


class RoutingTable:
    """All subscriptions, and the routes found so far. Shared subscriptions count in the ``holdings`` of the broker."""

    #: settled when the last subscription has effect for all publishers: at once, where one node serves them all
    gate: CommitTicket = COMMITTED

    def __init__(self, holdings: Holdings, authorizer: IAuthorizer) -> None:
        self._holdings = holdings
        self._authorizer = authorizer
        self._receivers = Receivers(authorizer)
        self._epoch: object = authorizer.epoch  #: that of the routes
        #: called when the authorizer has another epoch
        self.on_new_epoch: Callable[[], None] = _ignore
        self._tree: TopicTree[Session, Subscription] = TopicTree()
        self._groups: dict[tuple[str, str], SharedGroup] = {}
        self._shared_tree: TopicTree[SharedGroup, Subscription] = TopicTree()
        self._routes: dict[str, Route] = {}
        #: by the identities of the Sessions, groups and subscriptions that match
        self._found: dict[tuple[int, ...], _Found] = {}
        #: the same by the identity of each subscription
        self._having: dict[int, set[_Found]] = {}
        self._bytes = 0  # of all routes
        self._numbered: dict[int, Route] = {}
        self._numbers = count()
        #: how often anything has changed: see :meth:`changed_since`
        self.changes = 0
        self._changed: deque[str] = deque(maxlen=_MOST_CHANGES)
        self.forget_routes()

    def subscribe(self, session: Session, subscription: Subscription) -> Subscription | None:
        """Add or replace a Session's subscription. Return the one that it replaces; None for a shared one."""
        topic_filter = subscription.topic_filter
        if subscription.group is None:
            former = self._tree.add(topic_filter, session, subscription)
            self._forget(topic_filter, former)
            return former
        group = self._group_for(subscription)
        group.add(session, subscription)
        session.groups[group.shared_filter] = group
        return None

    def unsubscribe(self, session: Session, topic_filter: str) -> Subscription | None:
        """Remove a Session's subscription. ``topic_filter`` is as the Client wrote it.

        Return the removed one; None for a shared one.
        """
        name, inner = split_shared(topic_filter)
        if name is None:
            former = self._tree.remove(inner, session)
            self._forget(inner, former)
            return former
        session.groups.pop(topic_filter, None)
        group = self._groups.get((name, inner))
        if group is not None:
            group.remove(session)
            self._drop_if_empty(name, inner, group)
        return None

    def _group_for(self, subscription: Subscription) -> SharedGroup:
        """Return the group of a shared subscription, a new one if there is none."""
        topic_filter = subscription.topic_filter
        key = (subscription.group or "", topic_filter)
        group = self._groups.get(key)
        if group is None:
            shared_filter = f"$share/{subscription.group}/{topic_filter}"
            group = self._groups[key] = self._new_group(shared_filter)
            self._shared_tree.add(topic_filter, group, subscription)
            self._forget(topic_filter, None)
        return group

    def _new_group(self, shared_filter: str) -> SharedGroup:
        return SharedGroup(shared_filter, self._holdings)

    def _drop_if_empty(self, name: str, topic_filter: str, group: SharedGroup) -> None:
        if not group:
            self._forget(topic_filter, self._shared_tree.remove(topic_filter, group))
            del self._groups[name, topic_filter]

    def changed_since(self, changes: int) -> list[str] | None:
        """Return the Topic Filters of all changes after the one of this number: other topics have their routes still.

        None: too much has changed.
        """
        new = self.changes - changes
        return None if new > len(self._changed) else list(islice(self._changed, len(self._changed) - new, None))

    def find(self, topic: str) -> Route:
        """Return the topic's route."""
        if self._authorizer.epoch != self._epoch:
            self._begin_epoch()
        return self._routes.get(topic) or self._find(topic)

    def numbered(self, number: int) -> Route | None:
        """Return the route of this number, None if it is forgotten."""
        return self._numbered.get(number)

    def _find(self, topic: str) -> Route:
        if self._bytes > _MOST_BYTES:
            self._routes.clear()
            while self._bytes > _MOST_BYTES * 3 // 4:
                self._drop(next(iter(self._found.values())))
        plain = self._tree.match(topic)
        shared = self._shared_tree.match(topic) if self._groups else []
        if not (plain or shared):
            return self._nowhere
        # Each id stays unique: a found route keeps its Sessions, groups and subscriptions alive.
        key = tuple(map(id, chain(chain.from_iterable(plain), chain.from_iterable(shared))))
        found = self._found.get(key) or self._remember(key, plain, shared)
        route = found.route
        if route.judged and self._epoch is not None:
            route = self._permitted_route(found, topic)
        if len(topic) <= _LONGEST_REMEMBERED:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def is_checked(self, session: Session, *subscriptions: Subscription) -> bool:
        """Tell whether the authorizer has to allow each delivery to a Session for these subscriptions."""
        return self._receivers.are_asked_about(session, subscriptions)

    def _begin_epoch(self) -> None:
        self._epoch = self._authorizer.epoch
        self.forget_routes()
        self.on_new_epoch()

    def forget_routes(self) -> None:
        """Forget all routes: a permission has changed, or too much at once."""
        self._routes.clear()
        self._found.clear()
        self._having.clear()
        self._bytes = 0
        self._numbered.clear()
        self.changes += 1
        self._changed.clear()
        # The route of a topic without subscribers. The table does not remember its topics: finding it again is as fast,
        # and a million topics without subscribers must not displace the remembered routes.
        self._nowhere = self._new_route([], [])

    def _forget(self, topic_filter: str, former: Subscription | None) -> None:
        """Forget the routes of the topics that a filter matches, and those with a subscription that is no more."""
        having = self._having.pop(id(former), None) or ()
        forgotten = 0
        for found in having:
            forgotten += len(found.subscriptions)
            if forgotten > _MOST_FORGOTTEN_SINGLY:
                self.forget_routes()
                return
        for found in having:
            self._drop(found)
        self.changes += 1
        self._changed.append(topic_filter)
        routes = self._routes
        start = before_wildcard(topic_filter)
        if start == topic_filter:
            routes.pop(topic_filter, None)
            return
        alike = [topic for topic in routes if topic.startswith(start)] if len(routes) <= _MOST_LOOKED_AT else routes
        if len(alike) > _MOST_COMPARED:
            routes.clear()
            return
        for topic in alike:
            if matches(topic_filter, topic):
                del routes[topic]

    def _remember(
        self,
        key: tuple[int, ...],
        plain: list[tuple[Session, Subscription]],
        shared: list[tuple[SharedGroup, Subscription]],
    ) -> _Found:
        # The groups are in the route.
        subscriptions = [subscription for _, subscription in chain(plain, shared)]
        found = self._found[key] = _Found(self._new_route(plain, shared), key, subscriptions)
        self._bytes += found.size
        for subscription in subscriptions:
            self._having.setdefault(id(subscription), set()).add(found)
        return found

    def _drop(self, found: _Found) -> None:
        self._bytes -= found.size
        del self._found[found.key]
        del self._numbered[found.route.number]
        for route in found.permitted.values():
            del self._numbered[route.number]
        for subscription in found.subscriptions:
            others = self._having.get(id(subscription))
            if others is not None:
                others.discard(found)

    def _new_route(
        self, plain: list[tuple[Session, Subscription]], shared: list[tuple[SharedGroup, Subscription]]
    ) -> Route:
        by_session: dict[Session, list[Subscription]] = {}
        for session, subscription in plain:
            by_session.setdefault(session, []).append(subscription)
        found = []
        for session, subscriptions in by_session.items():
            options = merged(subscriptions)
            foreign = [subscription for subscription in subscriptions if not subscription.no_local]
            own = options if len(foreign) == len(subscriptions) else merged(foreign) if foreign else None
            found.append(Match(session, options, own, self._receivers.are_asked_about(session, subscriptions)))
        return self._numbered_route(tuple(found), tuple(group for group, _ in shared), 0)

    def _permitted_route(self, found: _Found, topic: str) -> Route:
        """Return the route without the Sessions that may not receive messages of this topic."""
        route = found.route
        allowed = bytes(
            not match.checked or self._receivers.may_receive(match.session.principal, topic) for match in route.matches
        )
        permitted = found.permitted.get(allowed)
        if permitted is None:
            if found.allowed is None:
                found.allowed = tuple(evolve(match, checked=False) for match in route.matches)
            receivers = tuple(compress(found.allowed, allowed))
            permitted = self._numbered_route(receivers, route.groups, len(allowed) - len(receivers))
            found.permitted[allowed] = permitted
            self._bytes += _PERMITTED_ROUTE + _PERMITTED * len(allowed)
        return permitted

    def _numbered_route(self, found: tuple[Match, ...], groups: tuple[SharedGroup, ...], withheld: int) -> Route:
        judged = self._epoch is None or any(match.checked for match in found)
        route = Route(found, groups, next(self._numbers), withheld, judged)
        self._numbered[route.number] = route
        return route


def _ignore() -> None:
    """Tell nobody of a new epoch."""


# Which Sessions receive messages without a question to the authorizer, and which it is asked about.
#
# How it works. The authorizer grants each subscription once, at SUBSCRIBE, and again when its epoch or the Principal of
# the Session changes. With GRANTED no delivery needs a question. With FILTERED the authorizer is asked about each
# topic, and the routing table remembers the answers as long as the epoch lasts. A Session whose subscriptions are to be
# granted anew is asked about like one with FILTERED subscriptions: so no message leaves because of a grant that is out
# of date.
#
# A Session of an earlier process is an exception. Only its User Name is stored, and its Client may have had further
# rights, for example by its group. So its messages are queued without a question. When the Client is back, each of them
# is asked about before it is sent.


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


# Shared subscriptions [MQTT5-4.8.2]: one member of the group gets each message.
#
# Members that are online and members that are away are listed apart. So a message finds its member at once, however
# many members are away.


Members = OrderedDict[Session, Subscription]


class SharedGroup:
    """The Sessions that share one Topic Filter under one ShareName. They get messages in turn."""

    def __init__(self, shared_filter: str, holdings: Holdings) -> None:
        self._holdings = holdings
        self.shared_filter = shared_filter  #: as Clients write it, with $share/NAME/
        # the member whose turn is next comes first
        self._online: Members = OrderedDict()
        self._away: Members = OrderedDict()

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a member, or replace its options."""
        self._holdings.shared_subscriptions += session not in self._online and session not in self._away
        (self._away if session.link is None else self._online)[session] = subscription

    def remove(self, session: Session) -> None:
        """Remove a member, if it is one."""
        for members in (self._online, self._away):
            self._holdings.shared_subscriptions -= members.pop(session, None) is not None

    def came(self, session: Session) -> None:
        """Note that a member is online. Its turn comes after those of all others."""
        if session in self._away:
            self._online[session] = self._away.pop(session)

    def left(self, session: Session) -> None:
        """Note that a member is away. Its turn comes after those of all others."""
        if session in self._online:
            self._away[session] = self._online.pop(session)

    def __len__(self) -> int:
        return len(self._online) + len(self._away)

    def away(self) -> list[Session]:
        """Return the members whose Clients are not connected."""
        return list(self._away)

    def next_connected(self) -> Session | None:
        """Return the connected member that gets the next message, None if no member is connected."""
        return next(iter(self._online), None)

    def choose(self, but: Session | None = None, online: bool = False) -> tuple[Session, Subscription] | None:
        """Return the next member that is online, else the next member, whose Session can queue the message.

        Never returns the member ``but`` or a later Session of its Client. With ``online``, returns only members that
        are online.
        """
        for members in (self._online,) if online else (self._online, self._away):
            for session, subscription in members.items():
                if but is None or session.client_id != but.client_id:
                    members.move_to_end(session)  # its next turn comes after the turns of all other members
                    return session, subscription
        return None
