"""Searches for clients and subscriptions: in the order of their names, page by page, in portions.

How it works. Sessions are visited in the order of their Client Identifiers, from the end of the last page on, until a
page is full. Each page costs what it visits, not what there is. A selective search may visit many Sessions for one that
it finds: after ``MOST_LOOKS`` it returns the page as it is, with the place where it goes on. The visits are long work
(:mod:`holdfast.scheduling.long_work`): some in each turn of the reactor, all searches together.

A Session that begins or ends meanwhile is shown or not. One that is there throughout is shown once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed

from holdfast.client_views import (
    ClientSearch,
    ClientView,
    ConnState,
    Found,
    SubscriptionSearch,
    SubscriptionView,
    Waiting,
)
from holdfast.scheduling.long_work import COMPARED_PER_STEP, LongWork, Meter, weight_of_comparison
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.directory.views import address_of, client_view, subscription_view
from holdfast.sessions.directory.waiting import inflight_messages, queued_messages
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.sessions.session.session import Session
from holdfast.tickets import CommitTicket
from holdfast.topics import covering, has_wildcard, matching

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


def _client_matches(search: ClientSearch, session: Session, link: IClientLink | None) -> bool:
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
            and (search.topic_filter is None or search.topic_filter in (topic_filter, subscription.topic_filter))
            and (is_match is None or is_match(subscription.topic_filter))
        )

    return is_wanted
