"""Grants subscriptions anew after a change of permissions, and ends those that are not allowed any more.

How it works. When the authorizer has another epoch, all grants are out of date. From this moment the authorizer is
asked about every delivery (:mod:`holdfast.sessions.routing.receivers`), and a walk through all Sessions asks about each
subscription again, in portions. When the walk has passed a Session, its deliveries need no questions any more. A
subscription that is refused now ends, also in the store. An example with three Sessions:

    the rules change             a, b, c: each delivery is asked about
    the walk has passed a, b     a: its subscription is granted; b: its subscription has ended
    the walk has passed c        c: its subscription is filtered from now on

A Session that is resumed by another Principal than before, for example from another address, is granted its
subscriptions anew too. So is a Session of an earlier process, when its Client is back: the walk leaves it out until
then, because of its Principal only the names are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.auth.answer_in_time import in_time
from holdfast.auth.denials import Denied
from holdfast.auth.interfaces import Grant, IAuthorizer
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.counters import Counters
from holdfast.sessions.routing.routing_table import RoutingTable
from holdfast.sessions.session.permissions import RESTORED, STALE
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription
from holdfast.terminal_text import counted
from holdfast.topics import behind_time, is_granted_to_all, split_shared
from holdfast.wire import ReasonCode

#: Sessions that are looked at in one step, if none has to be asked about
_LOOKS_PER_STEP = 100
#: subscriptions that the authorizer is asked about in one step
_QUESTIONS_PER_STEP = 4


class OnRevoke(Enum):
    """What happens to the Client of a subscription that is not allowed any more."""

    DISCONNECT = "disconnect"  #: its connection ends, in MQTT 5 with DISCONNECT 0x87
    WITHHOLD = "withhold"  #: it stays connected, and is told nothing


@define(eq=False)
class Revoked:
    """What a walk has ended."""

    subscriptions: int = 0
    clients: set[str] = field(factory=set)


class Grants:
    """Grants the subscriptions of Sessions anew. ``unsubscribe`` removes a subscription, also from the store."""

    _log = Logger()

    def __init__(
        self,
        *,
        authorizer: IAuthorizer,
        table: RoutingTable,
        clock: IReactorTime,
        work: LongWork,
        counters: Counters,
        sessions: Mapping[str, Session],
        unsubscribe: Callable[[Session, str], object],
        denied: Denied,
        on_revoke: OnRevoke,
    ) -> None:
        self._authorizer = authorizer
        self._table = table
        self._clock = clock
        self._work = work
        self._counters = counters
        self._sessions = sessions
        self._unsubscribe = unsubscribe
        self._denied = denied
        self.on_revoke = on_revoke
        table.on_new_epoch = self._begin_walk

    def revoke(self) -> Deferred[Revoked]:
        """Ask about all subscriptions anew, because permissions have changed. Fires with what has ended."""
        revoked = Revoked()
        done = self._work.do(self, self._walk(revoked)) or succeed(None)
        return done.addCallback(lambda _: self._walked(revoked))

    def resumed(self, session: Session) -> None:
        """Ask about the subscriptions of a resumed Session anew, if its grants are out of date."""
        if session.granted_in != self._authorizer.epoch:
            self.renew(session)

    def renew(self, session: Session) -> None:
        """Ask about the subscriptions of a connected Session anew."""
        session.granted_in = STALE
        revoked = Revoked()
        done = self._work.do(session.client_id, self._regrant(session, revoked))
        if done is not None:
            done.addErrback(self._failed)
        # Without filtered subscriptions all routes are still true: nothing was withheld before, or is from now on.
        if done is not None or any(subscription.filtered for subscription in session.subscriptions.values()):
            self._table.forget_routes()

    def _begin_walk(self) -> None:
        self.revoke().addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        """Log an unexpected error. The subscriptions that were not reached are asked about at each delivery."""
        self._log.failure("asking about subscriptions anew failed", failure)

    def _walked(self, revoked: Revoked) -> Revoked:
        if revoked.subscriptions:
            self._log.info(
                "permissions have changed: revoked {told_subscriptions} of {told_clients}",
                told_subscriptions=counted(revoked.subscriptions, "subscription"),
                told_clients=counted(len(revoked.clients), "client"),
                subscriptions=revoked.subscriptions, clients=len(revoked.clients),
            )  # fmt: skip
        return revoked

    def _walk(self, revoked: Revoked) -> Iterator[int]:
        epoch: object = None
        while True:
            epoch = self._authorizer.epoch
            for number, session in enumerate(list(self._sessions.values())):
                if not number % _LOOKS_PER_STEP:
                    yield 1
                if session.granted_in is not RESTORED and (epoch is None or session.granted_in != epoch):
                    yield from self._regrant(session, revoked)
            if self._authorizer.epoch == epoch:
                break
        self._table.forget_routes()  # they have been made while some grants were out of date

    def _regrant(self, session: Session, revoked: Revoked) -> Iterator[int]:
        """Ask about each subscription of a Session."""
        epoch = self._authorizer.epoch
        ended = 0
        effort = self._authorizer.effort
        for number, (key, subscription) in enumerate(list(session.subscriptions.items())):
            if not number % _QUESTIONS_PER_STEP or self._authorizer.effort != effort:
                yield 1 + self._authorizer.effort - effort
                effort = self._authorizer.effort
            if session.is_over:
                return
            ended += self._ask(session, key, subscription, revoked)
        if self._authorizer.epoch == epoch:
            session.granted_in = epoch
        if ended:
            self._tell(session)

    def _ask(self, session: Session, key: str, subscription: Subscription, revoked: Revoked) -> bool:
        """Ask about a subscription, and return whether it has ended."""
        if is_granted_to_all(key):
            return False
        try:
            answer = self._authorizer.may_subscribe(
                session.principal, behind_time(subscription.topic_filter), subscription.qos
            )
        except Exception:  # noqa: BLE001 - the authorizer is to blame, and the walk goes on
            answer = self._refused_by_error(Failure())
        if not isinstance(answer, Deferred):
            return self._take(session, key, subscription, answer, revoked)
        self._take(session, key, subscription, Grant.FILTERED, revoked)  # until the answer
        late = session.subscriptions.get(key)
        if late is not None:
            in_time(answer, self._clock).addErrback(self._refused_by_error).addCallback(
                partial(self._answered, session, key, late)
            ).addErrback(self._failed)
        return False

    def _refused_by_error(self, failure: Failure) -> Grant:
        self._log.error("authorizing a subscription failed: {error}", error=failure.getErrorMessage())
        return Grant.REFUSED

    def _answered(self, session: Session, key: str, subscription: Subscription, grant: Grant) -> None:
        if self._take(session, key, subscription, grant, Revoked()):
            self._tell(session)

    def _take(self, session: Session, key: str, subscription: Subscription, grant: Grant, revoked: Revoked) -> bool:
        """Take the answer about a subscription, unless that has changed meanwhile. Return whether it has ended."""
        if session.is_over or session.subscriptions.get(key) is not subscription:
            return False
        if grant is not Grant.REFUSED:
            filtered = grant is Grant.FILTERED
            if filtered is not subscription.filtered:
                subscription = evolve(subscription, filtered=filtered)
                session.subscriptions.add(key, subscription)
                self._table.subscribe(session, subscription)
            return False
        revoked.subscriptions += 1
        revoked.clients.add(session.client_id)
        self._counters.subscriptions_revoked += 1
        self._denied(session.principal, "subscribe", split_shared(key)[1])
        session.stop_replay(key)
        self._unsubscribe(session, key)
        return True

    def _tell(self, session: Session) -> None:
        """End the connection of a Client whose subscription has ended, if it is to be told so."""
        link = session.link
        if link is None:
            return
        with link.guard:
            if self.on_revoke is OnRevoke.DISCONNECT:
                link.close(ReasonCode.NOT_AUTHORIZED, "a subscription is not allowed any more")
            else:
                link.client_log.warn("a subscription has ended", "it is not allowed any more")
