"""Permissions and identities that end: subscriptions are granted anew or end, and connections of removed users end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import islice

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.terminal import counted
from holdfast.core.topics import behind_time, is_granted_to_all, split_shared
from holdfast.identity.interfaces import Grant, IAuthorizer, OnDenied, Principal, in_time
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.permissions import RESTORED, STALE
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.routing_table import RoutingTable
from holdfast.sessions.state import Subscription
from holdfast.wire import ReasonCode

# Grants subscriptions anew after a change of permissions, and ends those that are not allowed any more.
#
# How it works. When the authorizer has another epoch, all grants are out of date. From this moment the authorizer is
# asked about every delivery (:mod:`holdfast.sessions.routing_table`), and a walk through all Sessions asks about each
# subscription again, in parts. When the walk has passed a Session, its deliveries need no questions any more. A
# subscription that is refused now ends, also in the store. An example with three Sessions:
#
#     the rules change             a, b, c: each delivery is asked about
#     the walk has passed a, b     a: its subscription is granted; b: its subscription has ended
#     the walk has passed c        c: its subscription is filtered from now on
#
# A Session that is resumed by another Principal than before, for example from another address, is granted its
# subscriptions anew too. So is a Session of an earlier process, when its Client is back: the walk leaves it out until
# then, because of its Principal only the names are known.


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
        denied: OnDenied,
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


# Ends the connections of Clients whose identity has ended: it has expired, or an operator has removed it.
#
# How it works. A dismissal walks through the connected Clients in parts, and closes the connections of those that it
# names. A Client whose CONNECT is still being judged is not among them: its credentials may have been found right just
# before its user was removed. So an admission notes the number of dismissals at its beginning (``count``), and asks at
# its end whether a later one names its Client (:meth:`Dismissals.refusal`). An example:
#
#     CONNECT of alice; her password is being verified    count is 7
#     alice is removed: nobody is connected as alice      count is 8
#     the password was right                              dismissal 8 names alice: CONNECT is refused
#
# The time at which an identity ends (``expires_at`` of a Principal) is a deadline of its Client. Clients without such a
# time cost nothing.


#: Clients that are looked at in one step, if none of them is dismissed
#: the dismissals that an admission is compared with; one that lasts through more of them is refused
_REMEMBERED = 64
#: seconds until a connected Client is dismissed whose identity has expired
_SOON = 0.1

#: tells whether a Principal is dismissed
Matching = Callable[[Principal], bool]


@frozen
class Dismissal:
    """Which Clients are dismissed, the Reason Code for them, and a clause for the log and for the Clients."""

    matching: Matching
    reason: ReasonCode
    explanation: str


_EXPIRED = Dismissal(lambda _: True, ReasonCode.NOT_AUTHORIZED, "the identity has expired")
_OUTRUN = Dismissal(lambda _: True, ReasonCode.SERVER_BUSY, "too many identities were ended meanwhile")


class Dismissals:
    """Dismisses connected Clients of the registry, whose links and Sessions by Client Identifier it looks at."""

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        work: LongWork,
        links: Mapping[str, Connection],
        sessions: Mapping[str, Session],
    ) -> None:
        self._now = now
        self._work = work
        self._links = links
        self._sessions = sessions
        self._ends = Deadlines("the end of identities", clock, work, self._expired)
        self._latest: deque[Dismissal] = deque(maxlen=_REMEMBERED)
        #: how many dismissals there have been
        self.count = 0

    def dismiss(self, matching: Matching, reason: ReasonCode, explanation: str) -> Deferred[int]:
        """Disconnect the connected Clients that match, in parts. Fires with their number.

        Each gets DISCONNECT where its protocol version has it, and its Will is published: the Client has not sent
        DISCONNECT [MQTT5-3.1.2-8]. Their Sessions stay. A Client for which ``matching`` fails is disconnected too.
        """
        dismissal = Dismissal(matching, reason, explanation)
        self.count += 1
        self._latest.append(dismissal)
        dismissed: list[str] = []
        done = self._work.do(self, self._walk(dismissal, dismissed)) or succeed(None)
        return done.addCallback(lambda _: self._dismissed(len(dismissed), explanation))

    def refusal(self, principal: Principal, count: int) -> Dismissal | None:
        """Return why a Client that is being admitted since the first ``count`` dismissals is refused; None: it is not.

        Its identity has expired, or a later dismissal names it. If more came than are remembered, it has to try again.
        """
        if principal.expires_at is not None and principal.expires_at <= self._now() / 1000:
            return _EXPIRED
        missed = self.count - count
        if missed > len(self._latest):
            return _OUTRUN
        latest = islice(reversed(self._latest), missed)
        return next((dismissal for dismissal in latest if dismissal.matching(principal)), None)

    def attached(self, principal: Principal) -> None:
        """Disconnect this Client when its identity ends, instead of any earlier time."""
        if principal.expires_at is None:
            self.left(principal.client_id)
        else:
            delay = principal.expires_at - self._now() / 1000
            self._ends.set(principal.client_id, max(delay, _SOON))  # never at once: the caller is not done

    def left(self, client_id: str) -> None:
        """Forget the time at which the identity of a Client ends: it is not connected any more."""
        if self._ends:
            self._ends.discard(client_id)

    def stop(self) -> None:
        """Disconnect no Client any more because of its time."""
        self._ends.stop()

    def _walk(self, dismissal: Dismissal, dismissed: list[str]) -> Iterator[int]:
        for number, client_id in enumerate(list(self._links)):
            if not number % _LOOKS_PER_STEP:
                yield 1
            link, session = self._links.get(client_id), self._sessions.get(client_id)
            if link is None or session is None:  # gone since the walk began
                continue
            with link.guard:
                if dismissal.matching(session.principal):
                    yield 1
                    dismissed.append(client_id)
                    link.close(dismissal.reason, dismissal.explanation)

    def _dismissed(self, count: int, explanation: str) -> int:
        if count:
            self._log.info(
                "disconnected {clients}: {explanation}",
                clients=counted(count, "client"), count=count, explanation=explanation,
            )  # fmt: skip
        return count

    def _expired(self, client_id: str) -> Iterator[int]:
        link = self._links.get(client_id)
        if link is not None:
            with link.guard:
                link.close(_EXPIRED.reason, _EXPIRED.explanation)
        yield from ()
