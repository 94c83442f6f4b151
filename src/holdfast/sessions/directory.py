"""Searches for clients and subscriptions: in the order of their names, page by page, in parts.

How it works. Sessions are visited in the order of their Client Identifiers, from the end of the last page on, until a
page is full. Each page costs what it visits, not what there is. A selective search may visit many Sessions for one that
it finds: after ``MOST_LOOKS`` it returns the page as it is, with the place where it goes on. The visits are long work
(:mod:`holdfast.scheduling.long_work`): some in each turn of the reactor, all searches together.

A Session that begins or ends meanwhile is shown or not. One that is there throughout is shown once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed

from holdfast.core.clients import (
    ClientSearch,
    ClientView,
    ConnectionView,
    ConnState,
    Found,
    SubscriptionSearch,
    SubscriptionView,
    Waiting,
    WaitingMessage,
)
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import covering, has_wildcard, matching, without_queue
from holdfast.scheduling.long_work import COMPARED_PER_STEP, LongWork, Meter, weight_of_comparison
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.inflight import Inflight, InflightState
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.state import Subscription

#: Sessions, and subscriptions, that a search visits at most for one page
MOST_LOOKS = 20_000
#: Sessions that are visited in one step
_SESSIONS_PER_STEP = 20

T = TypeVar("T")

#: a Client Identifier and one of its Topic Filters; None: behind all of them
Place = tuple[str, str | None]


class Directory:
    """Shows the clients of a registry, and kicks them."""

    def __init__(self, registry: SessionRegistry, work: LongWork, most_looks: int = MOST_LOOKS) -> None:
        self._registry = registry
        self._work = work
        self._most_looks = most_looks

    @property
    def client_count(self) -> int:
        """How many Clients have a Session."""
        return self._registry.session_count

    @property
    def subscription_count(self) -> int:
        """How many subscriptions they have, shared ones too."""
        return self._registry.subscription_count

    def client(self, client_id: str) -> ClientView | None:
        """Return a Client, None if it has no Session."""
        session = self._registry.session_of(client_id)
        return None if session is None else client_view(session, self._registry.link_of(client_id))

    def clients(self, search: ClientSearch, after: str, limit: int) -> Deferred[Found[ClientView, str]]:
        """Return the next clients behind this Client Identifier ("" for the first ones)."""
        page: Found[ClientView, str] = Found()
        return self._done(self._find_clients(search, after, limit, page), page)

    def subscriptions(
        self, search: SubscriptionSearch, after: Place, limit: int
    ) -> Deferred[Found[SubscriptionView, Place]]:
        """Return the next subscriptions behind this Client Identifier and Topic Filter, in their order."""
        page: Found[SubscriptionView, Place] = Found()
        return self._done(self._find_subscriptions(search, after, limit, page), page)

    def queued(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return queued messages of a Client (:func:`queued_messages`), None if it has no Session."""
        session = self._registry.session_of(client_id)
        return None if session is None else queued_messages(session, position, limit, most_bytes)

    def inflight(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return messages in flight to a Client (:func:`inflight_messages`), None if it has no Session."""
        session = self._registry.session_of(client_id)
        return None if session is None else inflight_messages(session, position, limit, most_bytes)

    def kick(self, client_id: str) -> CommitTicket | None:
        """End the connection and the Session of a Client, None if it has none."""
        return self._registry.kick(client_id)

    def unsubscribe(self, client_id: str, topic_filter: str) -> CommitTicket | None:
        """End a subscription of a Client, and its replay; None if there is none."""
        session = self._registry.session_of(client_id)
        if session is None or topic_filter not in session.subscriptions:
            return None
        session.stop_replay(topic_filter)
        return self._registry.unsubscribe(session, topic_filter)

    def _done(self, steps: Iterator[int], page: T) -> Deferred[T]:
        working = self._work.do(self, steps)
        return succeed(page) if working is None else working.addCallback(lambda _: page)

    def _find_clients(
        self, search: ClientSearch, after: str, limit: int, page: Found[ClientView, str]
    ) -> Iterator[int]:
        looks = 0
        while True:
            yield 1
            names = self._names(search.client_id, after, _SESSIONS_PER_STEP)
            for client_id in names:
                session, link = self._registry.session_of(client_id), self._registry.link_of(client_id)
                if session is not None and _client_matches(search, session, link):
                    if len(page.items) == limit:
                        page.after = after
                        return
                    page.items.append(client_view(session, link))
                after = client_id
            looks += len(names)
            if not names or search.client_id is not None:
                return
            if looks >= self._most_looks:
                page.after = after
                return

    def _find_subscriptions(
        self,
        search: SubscriptionSearch,
        after: Place,
        limit: int,
        page: Found[SubscriptionView, Place],
    ) -> Iterator[int]:
        looks = 0
        is_wanted, meter = _wanted_by(search), Meter(COMPARED_PER_STEP)
        client_id, behind = after
        # The page may have ended within a Session: that one is visited again, from its last Topic Filter on.
        is_open = behind is not None and search.client_id in (None, client_id)
        names = [client_id] if is_open else []
        while True:
            for client_id in names:
                session = self._registry.session_of(client_id)
                if session is None or session.is_over:
                    continue
                best: list[str] = []
                room = limit - len(page.items) + 1  # one more, to know whether there is one
                filters = list(session.subscriptions)
                for each in filters:
                    due = meter.add(weight_of_comparison(each))
                    if due:
                        yield due
                        if len(best) > 4 * room + 4 * COMPARED_PER_STEP:
                            best = nsmallest(room, best)
                    if each > (behind or "") and is_wanted(session, each):
                        best.append(each)
                looks += len(filters) + 1
                for topic_filter in sorted(best)[:room]:
                    subscription = session.subscriptions.get(topic_filter)
                    if subscription is None:  # unsubscribed since
                        continue
                    if len(page.items) == limit:
                        page.after = after
                        return
                    page.items.append(subscription_view(client_id, topic_filter, subscription))
                    after = client_id, topic_filter
                behind = ""
                if looks >= self._most_looks:
                    page.after = client_id, None
                    return
            yield 1
            behind = ""
            if search.client_id is not None and client_id >= search.client_id:
                return
            names = self._names(search.client_id, client_id, _SESSIONS_PER_STEP)
            if not names:
                return

    def _names(self, only: str | None, after: str, most: int) -> list[str]:
        """Return the next Client Identifiers: behind this one, or the only one that is wanted."""
        if only is None:
            return self._registry.names.after(after, most)
        return [only] if only > after and self._registry.session_of(only) is not None else []


def _client_matches(search: ClientSearch, session: Session, link: Connection | None) -> bool:
    username = session.principal.username
    return (
        (search.state is None or (search.state is ConnState.CONNECTED) is (link is not None))
        and (search.like_client_id is None or search.like_client_id in session.client_id)
        and (search.username is None or search.username == username)
        and (search.like_username is None or (username is not None and search.like_username in username))
        and (search.listener is None or search.listener == (link or session.principal).listener)
        and (search.address is None or search.address == address_of(session, link))
    )


def _wanted_by(search: SubscriptionSearch) -> Callable[[Session, str], bool]:
    """Return a function that tells whether a Topic Filter of a Session is searched for."""
    is_match: Callable[[str], bool] | None = None
    if search.matching is not None:
        is_match = covering(search.matching) if has_wildcard(search.matching) else matching(search.matching)

    def is_wanted(session: Session, topic_filter: str) -> bool:
        subscription = session.subscriptions.get(topic_filter)
        return (
            subscription is not None
            and (search.qos is None or search.qos == subscription.qos)
            and (search.share is None or search.share == subscription.group)
            and (search.topic_filter is None or _is_named(search.topic_filter, topic_filter, subscription))
            and (is_match is None or is_match(subscription.topic_filter))
        )

    return is_wanted


def _is_named(wanted: str, topic_filter: str, subscription: Subscription) -> bool:
    """Tell whether a subscription has this Topic Filter: the whole one in either spelling, or without its share."""
    return wanted in (topic_filter, subscription.topic_filter) or without_queue(wanted) == topic_filter


# Makes the views of one Session and its subscriptions.


def client_view(session: Session, link: Connection | None) -> ClientView:
    """Return the view of a Session; ``link`` is the connection of its Client, None if it is away."""
    principal, limits, queue = session.principal, session.limits, session.queue
    return ClientView(
        client_id=session.client_id,
        username=principal.username,
        address=address_of(session, link),
        listener=principal.listener if link is None else link.listener,
        groups=tuple(sorted(principal.groups)),
        method=principal.method,
        connection=None if link is None else _connection_view(link),
        created_at=session.attendance.created_at,
        since=session.attendance.since,
        expiry_interval=session.expiry_interval,
        inflight=session.inflight.count,
        inflight_max=session.window.size,
        awaiting_rel=len(session.received),
        awaiting_rel_max=limits.max_awaiting_rel,
        queued=len(queue),
        queued_bytes=queue.bytes + queue.held_bytes,
        queued_max=limits.max_mqueue_len,
        conflated=0 if queue.conflation is None else queue.conflation.conflated,
        subscriptions=len(session.subscriptions),
        subscriptions_max=limits.max_subscriptions,
    )


def address_of(session: Session, link: Connection | None) -> str | None:
    """Return the IP address of a Client, or the last one that it had. None for a UNIX domain socket."""
    if link is not None:
        return None if link.peer.ip is None else str(link.peer.ip)
    address = session.principal.address
    return address if address and address != "unix" else None


def _connection_view(link: Connection) -> ConnectionView:
    client = link.client
    return ConnectionView(
        port=None if link.peer.ip is None else link.peer.port,
        keep_alive=None if client is None else client.keep_alive,
        protocol_version=link.protocol_version,
        clean_start=None if client is None else client.clean_start,
        bridge=link.bridge,
        will=client is not None and client.will is not None,
        unsent_bytes=link.unsent,
    )


def subscription_view(client_id: str, topic_filter: str, subscription: Subscription) -> SubscriptionView:
    """Return the view of a subscription; ``topic_filter`` has its share."""
    return SubscriptionView(
        client_id=client_id,
        topic_filter=topic_filter,
        share=subscription.group,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        identifier=subscription.identifier,
        conflate=subscription.conflate or None,
    )


# The messages that wait for one Client, page by page.


_STATES = {
    InflightState.AWAITS_COMMIT: "awaits_commit",
    InflightState.UNSENT: "unsent",
    InflightState.SENT: "sent",
    InflightState.RELEASED: "released",
    InflightState.OVER: "over",
}


def queued_messages(session: Session, position: int, limit: int, most_bytes: int) -> Waiting:
    """Return queued messages from a position on, at most so many, and about so many bytes of payload.

    The position counts all messages that the queue has had. So messages that leave at its head move nothing. One that
    leaves further behind, such as an expired one, may let a later page repeat a message; none is left out.
    """
    queue = session.queue
    start = max(position, queue.dequeued)
    skipped = start - queue.dequeued
    found: list[WaitingMessage] = []
    size = 0
    for queued in islice(queue.listed(skipped), limit):
        if found and size + len(queued.outgoing.message.payload) > most_bytes:
            break
        size += len(queued.outgoing.message.payload)
        found.append(_queued_view(queued))
    after = start + len(found)
    return Waiting(found, after if after < queue.enqueued else None)


def inflight_messages(session: Session, position: int, limit: int, most_bytes: int) -> Waiting:
    """Return messages in flight by their Packet Identifiers, from this one on; limited as the queued ones."""
    entries = session.inflight.entries
    identifiers = sorted(identifier for identifier in entries if identifier >= position)
    found: list[WaitingMessage] = []
    size = 0
    following = None
    for identifier in identifiers:
        view = None if len(found) == limit else _inflight_view(identifier, entries[identifier])
        length = len(view.payload or b"") if view is not None else 0
        if view is None or (found and size + length > most_bytes):
            following = identifier
            break
        size += length
        found.append(view)
    return Waiting(found, following, session.inflight.blocks.count)


def _queued_view(queued: Queued) -> WaitingMessage:
    message = queued.outgoing.message
    return WaitingMessage(
        topic=message.topic,
        payload=message.payload,
        qos=queued.qos,
        retain=queued.retain,
        publisher=message.client_id,
        username=message.username,
        expires_at=message.expires_at,
    )


def _inflight_view(identifier: int, entry: Inflight) -> WaitingMessage:
    outgoing = entry.outgoing or (entry.delivery.outgoing if entry.delivery is not None else None)
    if outgoing is None and entry.packet:
        outgoing, _ = OutgoingMessage.of_packet(entry.packet, entry.protocol_version, entry.expires_at)
    message = None if outgoing is None else outgoing.message
    return WaitingMessage(
        topic=None if message is None else message.topic,
        payload=None if message is None else message.payload,
        qos=entry.qos,
        retain=message is not None and message.retain,
        publisher=None if message is None else message.client_id,
        username=None if message is None else message.username,
        expires_at=entry.expires_at or None,
        packet_identifier=identifier,
        state=_STATES[entry.state],
    )
