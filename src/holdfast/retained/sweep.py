"""The sweep: it removes expired messages and old tombstones, and adapts stored messages to changed limits.

With expiry notices, it also looks for expired messages every second, so that subscribers are told soon.

Every statement is bounded to some rows, so the writer is never blocked for long. A sweep works in *slices* of at most
``msg_clear_limit`` messages and as many tombstones, with a pause after each, until nothing is left:

    60 s   50,000 of 120,000 expired messages are removed, in steps of 1000
    61 s   50,000
    62 s   20,000; the next sweep begins an interval after this one

Several nodes on one database would compete for the same rows, so one of them leads: it sweeps to the end, and the
others leave out sweeps meanwhile. Notices of expiry are each node's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import Interface

from holdfast.core.messages import ApplicationMessage, ChangeKind
from holdfast.core.tickets import StorageFailure
from holdfast.retained.feed import Change, ChangeFeed
from holdfast.retained.limits import Quota, RetainerLimits
from holdfast.retained.policies import Policies
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred

#: rows changed by one statement
_ROWS = 1000
#: seconds between two slices
_PAUSE = 1.0
#: seconds until preparations that failed at start are tried again
_PREPARE_AGAIN = 60.0
#: seconds between two looks for messages to give notice of
_NOTICE_AGAIN = 1.0


class Sweep:
    """Removes expired messages and old tombstones every ``msg_clear_interval``, in slices.

    ``now`` returns milliseconds since the epoch. ``expired`` is called with the topics of removed messages, and
    ``counted`` when stored messages have been counted for new quotas. Set
    ``notices`` before the start if subscribers may be told of expired messages; :meth:`announce` says of which.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        limits: RetainerLimits,
        expired: Callable[[Sequence[str]], None],
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._now = now
        self._limits = limits
        self._expired = expired
        self._counted = counted
        self._prepared = True
        self._prepare_again = False
        self.notices: ExpiryNotices | None = None
        #: tells of which topics notice is given; None: of none
        self._announces: Callable[[str], bool] | None = None
        self._started = self._notices_begun = False
        self._sweeping = PeriodicJob(
            self._sweep,
            name="the sweep of expired messages",
            interval=limits.msg_clear_interval,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._noticing = PeriodicJob(
            self._expire_some,
            name="the search for messages to give notice of",
            interval=_NOTICE_AGAIN,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._preparing = PeriodicJob(
            self._prepare,
            name="adapting stored messages to the limits",
            interval=_PREPARE_AGAIN,
            clock=clock,
            foreseen=(StorageFailure,),
        )

    def start(self) -> None:
        """Adapt stored messages to the limits, and sweep at intervals."""
        limits = self._limits
        self._started = True
        if limits.msg_clear_interval:
            self._sweeping.start(limits.msg_clear_interval)
        if self._announces is not None:
            self._begin_notices()
        if limits.has_quotas or limits.msg_expiry_interval_override is not None:
            self._prepared = False
            self._preparing.start()

    def stop(self) -> None:
        """Stop sweeping."""
        self._started = self._notices_begun = False
        self._sweeping.stop()
        self._noticing.stop()
        if self.notices is not None:
            self.notices.stop()
        self._preparing.stop()

    def change_policies(self, policies: Policies) -> None:
        """Count stored messages for the quotas of other policies."""
        changed = policies.counted_filters != self._limits.policies.counted_filters
        self._limits = evolve(self._limits, policies=policies)
        if changed:
            self._adapt()

    def change_limits(self, limits: RetainerLimits) -> None:
        """Sweep with other limits from now on, count for their quotas, and adapt stored messages to them."""
        before, self._limits = self._limits, limits
        self._sweeping.interval = limits.msg_clear_interval or _PREPARE_AGAIN
        if self._started and limits.msg_clear_interval != before.msg_clear_interval:
            self._sweeping.stop()
            if limits.msg_clear_interval:
                self._sweeping.start(limits.msg_clear_interval)
        override = (limits.msg_expiry_interval_override, limits.allow_never_expire)
        if limits.quotas != before.quotas or (
            override[0] is not None and override != (before.msg_expiry_interval_override, before.allow_never_expire)
        ):
            self._adapt()

    def _adapt(self) -> None:
        """Adapt stored messages to the present limits, once more if that is under way."""
        if not self._started:
            return
        if self._prepared:
            self._prepared = False
            self._preparing.start()
        else:
            self._prepare_again = True

    def announce(self, announces: Callable[[str], bool] | None) -> None:
        """Give notice of expired messages of the topics that ``announces`` tells, from now on; None: of none."""
        if self.notices is None:
            return
        self._announces = announces
        if self._started and announces is not None:
            self._begin_notices()

    def _begin_notices(self) -> None:
        if not self._notices_begun:
            self._notices_begun = True
            self._noticing.start()

    @as_deferred
    async def make_room(self) -> bool:
        """Remove some expired messages, so that a quota has room. Returns whether more may be left."""
        try:
            removed: int = await self._expire(_ROWS)
        except StorageFailure as failure:
            self._log.error("sweeping expired messages failed: {failure}", failure=failure)
            return False
        return removed == _ROWS

    async def _expire(self, limit: int) -> int:
        """Remove expired messages, and begin to give notice of them. Returns how many they were."""
        notices, announces = self.notices, self._announces
        if notices is None or announces is None:
            topics = await self._store.expire(self._now(), limit)
            self._expired(topics)
            return len(topics)
        changed, forget = notices.changed_topics()
        try:
            topics = await self._store.expire(self._now(), limit)
        finally:
            forget()
        self._expired(topics)
        notices.add([topic for topic in topics if topic not in changed and announces(topic)])
        return len(topics)

    @as_deferred
    async def _expire_and_tell(self, limit: int) -> int:
        removed: int = await self._expire(limit)
        if self.notices is not None:
            await self.notices.sent()
        return removed

    def _expire_some(self) -> Deferred[bool]:
        if self._announces is None:  # a reload has ended the notices
            return succeed(False)
        return self._in_steps(self._expire_and_tell)

    @as_deferred
    async def _prepare(self) -> None:
        """Count stored messages for new quotas, apply ``msg_expiry_interval_override``, tell about excess; once."""
        self._prepare_again = False
        limits = self._limits
        counted = [topic_filter for topic_filter, _ in limits.topic_quotas]
        await self._store.count_quotas(counted, limits.client_quota is not None, limits.policies)
        while await self._store.count_usage(_ROWS):
            pass
        self._counted()
        after: str | None = ""
        while limits.msg_expiry_interval_override is not None and after is not None:
            lifetime = round(limits.msg_expiry_interval_override * 1000)
            after = await self._store.cap_expiry(lifetime, not limits.allow_never_expire, after, _ROWS)
        await self._tell_excess()
        if self._prepare_again:
            await self._prepare()
            return
        self._prepared = True
        self._preparing.stop()

    async def _tell_excess(self) -> None:
        """Say which quotas the stored messages exceed: after a change of the configuration or an upgrade."""
        limits = self._limits
        if not limits.has_quotas:
            return
        quotas = [(topic_filter, topic_filter, quota) for topic_filter, quota in limits.topic_quotas]
        for policy in limits.policies.policies:
            if policy.has_quota:
                quota = Quota(policy.name, policy.max_retained_messages, policy.max_retained_bytes)
                quotas.append((limits.policies.scope_name(policy), policy.topic_filter, quota))
        usage = await self._store.read_usage((), [scope for scope, _, _ in quotas], ())
        exceeded = [("", limits.total_quota.excess(usage.total.messages, usage.total.bytes))]
        for scope, topic_filter, quota in quotas:
            used = usage.filters[scope]
            exceeded.append((f" of {topic_filter!r}", quota.excess(used.messages, used.bytes)))
        for whose, excess in exceeded:
            if excess:
                self._log.warn(
                    "the retained messages{whose} exceed a limit: {excess}; they stay, and further ones are refused",
                    whose=whose,
                    excess=excess,
                )

    @as_deferred
    async def _sweep(self) -> None:
        """Sweep one slice, if this node leads. The next one follows after a pause, or at the next interval."""
        if not (await self._store.take_sweep()):
            return
        before = self._now() - round(self._limits.tombstone_ttl * 1000)
        more = await self._in_steps(self._expire_and_tell)
        more = (await self._in_steps(partial(self._store.purge, before))) or more
        if not more:
            await self._store.give_sweep_back()
        elif self._started:
            self._sweeping.start(_PAUSE)

    @as_deferred
    async def _in_steps(self, remove: Callable[[int], Deferred[int]]) -> bool:
        """Remove a slice in steps; return whether more may be left."""
        left = self._limits.msg_clear_limit
        while left > 0:
            limit = min(left, _ROWS)
            if (await remove(limit)) < limit:
                return False
            left -= limit
        return True


# Expiry notices: present subscribers get an empty message when a retained message expires, if the operator wants that.
#
# How it works. The sweep turns expired messages into tombstones, and a committed tombstone is told once. Between the
# two a client may publish the topic anew. Its subscribers have that message already or get it soon, and an empty one
# after it would be wrong: so the notice of a topic that changes is left out.
#
#     sweep asks the store      the notices listen to the change feed
#     a client sets a/b         a/b is noted as changed
#     the store answers         a/b and a/c have expired; a notice of a/c waits, none of a/b
#     a turn has room           a/c gets its notice
#
# Notices wait for room like the changes of operators, so that a million of them stop nobody. The sweep waits for its
# notices. So the notices of one part of a sweep wait for slow subscribers ten seconds at most: else a client that reads
# a byte now and then would end all removal of expired messages.


#: Like that of a clear: a subscriber with QoS 1 gets it also if it is away.
_QOS = 1
#: The seconds for which the notices that wait together wait for slow subscribers.
_PATIENCE = 10.0


@define
class Patience:
    """The seconds for which slow subscribers may still be waited for."""

    left: float


class INoticePublisher(Interface):
    """Sends a message to present subscribers only."""

    def tell(message: ApplicationMessage) -> None:
        """Send a message to all matching Sessions, in place of queued retained messages of its topic."""

    def room(topic: str, patience: Patience | None = None) -> Deferred[None] | None:
        """Return None if a message may be sent to this topic now; else wait, then ask again.

        It takes the time for which it waits for slow subscribers from the ``patience``, and waits no longer than that.
        """


class ExpiryNotices:
    """The notices that wait for their turn."""

    def __init__(self, feed: ChangeFeed, publisher: INoticePublisher) -> None:
        self._feed = feed
        self._publisher = publisher
        # In the order of their sending. A dict would search past all that were sent to find the first one.
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._listening: int | None = None  # the key of the change feed, while notices wait
        self._sending: Deferred[None] = succeed(None)

    def changed_topics(self) -> tuple[set[str], Callable[[], None]]:
        """Return a set that takes the topics that change from now on, and what ends that."""
        changed: set[str] = set()

        def note(change: Change) -> None:
            if change.kind is not ChangeKind.EXPIRE:
                changed.add(change.topic)

        key = self._feed.listen(note)
        return changed, lambda: self._feed.forget(key)

    def add(self, topics: Sequence[str]) -> None:
        """Begin to send notices of topics whose messages have expired."""
        if not topics:
            return
        self._waiting.update(dict.fromkeys(topics))
        if self._listening is None:
            self._listening = self._feed.listen(self._leave_out)
            self._sending = self._send()

    def sent(self) -> Deferred[None]:
        """Return a Deferred that fires when no notice waits."""
        done: Deferred[None] = Deferred()
        self._sending.addBoth(done.callback)
        return done

    def stop(self) -> None:
        """Leave out the notices that wait."""
        self._waiting.clear()

    def _leave_out(self, change: Change) -> None:
        if change.kind is not ChangeKind.EXPIRE:
            self._waiting.pop(change.topic, None)

    @as_deferred
    async def _send(self) -> None:
        patience = Patience(_PATIENCE)
        try:
            while self._waiting:
                topic = next(iter(self._waiting))
                waiting = self._publisher.room(topic, patience)
                if waiting is not None:
                    await waiting
                    continue  # meanwhile the topic may have changed
                del self._waiting[topic]
                self._publisher.tell(ApplicationMessage(topic, b"", _QOS, retain=True))
        finally:
            self._waiting.clear()
            self._feed.forget(self._listening or 0)
            self._listening = None
