"""The retainer: the entrance to retained messages for Sessions.

It asks :class:`holdfast.retained.admission.Admission` about each message, stamps the change, gives it to the store and
announces it to the change feed. A message that passes here:

    admission.undecided, check    refused with RetainRefused, or charged
    retain                        stamped with a revision; the ticket is settled when the change is durable
    _put                          given to the store, and announced to the feed, so that running replays drop older
                                  copies
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from holdfast.core.extensions import Conditions
from holdfast.core.messages import (
    BY_OPERATORS,
    HELD_ENTRY,
    ApplicationMessage,
    ChangeKind,
    ChangeOrigin,
    RetainedChange,
    RetainedChanges,
    RetainedMessage,
)
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure, both
from holdfast.retained.admission import Admission
from holdfast.retained.compare_and_set import CompareAndSets, Decision
from holdfast.retained.delayed_writes import DelayedWrites
from holdfast.retained.feed import Change, ChangeFeed
from holdfast.retained.leases import LeaseBook, LeaseRows, NoLeaseRows, Wanted
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.policies import Policies
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.conditional import ConditionalChange, Verdict
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.sweep import ExpiryNotices, INoticePublisher, Sweep
from holdfast.retained.totals import TotalsReader
from holdfast.scheduling.waiting import as_deferred
from holdfast.watch.lazy_log import LogThrottle
from holdfast.wire.properties import NO_PROPERTIES

#: the topics that one transaction looks at when the clock jumps
_MOVED_ROWS = 1000
#: seconds until the database is asked again
_AGAIN = 1.0


class RetainedMessages(Service):
    """Retained messages in a store, with limits and expiry.

    ``now`` returns milliseconds since the epoch. The composition opens the store before it starts this service, and
    closes the store after it has stopped this service.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        limits: RetainerLimits,
        sources: SourceCheck | None = None,
        leases: LeaseRows | None = None,
    ) -> None:
        """``sources`` hears of messages that no Client has just published. ``leases`` are stored, or not at all."""
        self.leases = LeaseBook(leases or NoLeaseRows())
        self._leased = self.leases.by_topic  # looked into for each change
        #: is called when the policies have changed
        self.policies_changed: Callable[[], None] = lambda: None
        self.feed = ChangeFeed()
        self.sources = sources
        self.store = store
        self._clock = clock
        #: messages of topics with a ``write_interval``, until they are written
        self.delayed = store.delayed = DelayedWrites(self._put_waiting, clock, store.flushed)
        self._now = now
        self._conditional = CompareAndSets(store, leases)
        self.totals = TotalsReader(store, clock, now)
        self._sweep = Sweep(store, clock=clock, now=now, limits=limits, expired=self._expired, counted=self._counted)
        self.admission = Admission(store, limits, self.delayed, self._sweep.make_room, clock)
        self._announces_expiry = False  #: for topics whose policy says nothing
        self._log_throttle = LogThrottle(self._log, clock.seconds, write=self._log.warn)
        #: the last change that was stored, or will be, for one that routes its message to other nodes in the same turn
        self.last: RetainedChange | None = None
        #: messages set, cleared and expired here since the start
        self.changes = dict.fromkeys(ChangeKind, 0)

    def announce_expiry(self, publisher: INoticePublisher, general: bool = True) -> None:
        """Tell present subscribers when messages expire. Call it before the start.

        ``general`` holds for topics whose policy says nothing.
        """
        self._sweep.notices = ExpiryNotices(self.feed, publisher)
        self._announces_expiry = general
        self._sweep.announce(self.admission.policies.announces(general))

    def startService(self) -> None:
        """Start to sweep expired messages, and to judge publishers."""
        Service.startService(self)
        self._sweep.start()
        if self.sources is not None:
            self.sources.start()

    def stopService(self) -> None:
        """Stop sweeping and judging, and give all delayed messages to the writer."""
        Service.stopService(self)
        self.delayed.stop()
        self._sweep.stop()
        if self.sources is not None:
            self.sources.stop()

    def retain(
        self, message: ApplicationMessage, origin: ChangeOrigin, live: bool = True, lease: Wanted | None = None
    ) -> CommitTicket:
        """Store the message, or clear its topic if its payload is empty [MQTT5-3.3.1-5], [MQTT5-3.3.1-6].

        A zero-byte message is never stored [MQTT5-3.3.1-7]; clears are always allowed. Raises
        :class:`RetainRefused` when a limit is reached. The topic then keeps its older message. ``live`` tells that the
        message is also sent to present subscribers. Its ``lease`` is stored with it.
        """
        now = self._now()
        # Operators can remove the messages of the time before the retainer was disabled.
        if not (self.admission.enabled or (origin in BY_OPERATORS and not message.payload)):
            return COMMITTED
        if not message.payload:
            return self._clear(message, now, origin, live)
        self.admission.check(message, origin)
        if origin is not ChangeOrigin.PUBLISH and self.sources is not None:
            if origin in BY_OPERATORS:
                self.sources.added(message.username)
            else:
                self.sources.left(message.username)
        change = self._change(message, now, origin)
        if lease is not None:
            ticket = self._put(change, ChangeKind.SET, origin, live)
            return both(ticket, self.leases.give(lease.of(change)))
        if self.admission.delays and not message.qos and live and self._delayed(change, origin):
            return COMMITTED
        return self._put(change, ChangeKind.SET, origin, live)

    def retain_if(
        self,
        message: ApplicationMessage,
        conditions: Conditions,
        repeated: bool,
        lease: Wanted | None = None,
        origin: ChangeOrigin = ChangeOrigin.PUBLISH,
    ) -> Deferred[Decision]:
        """Store the message, or clear its topic, if the conditions hold. Raises :class:`RetainRefused`.

        ``repeated`` tells that the PUBLISH had DUP 1. Called in the place of :meth:`retain`, only while the retainer is
        enabled. Fails with :class:`StorageFailure`; an unavailable store may have stored the message.
        """
        if message.payload:
            self.admission.check(message, ChangeOrigin.PUBLISH)
        change = self._change(message, self._now(), origin)
        conditional = ConditionalChange(change, conditions, message.properties, repeated)
        return self._conditional.submit(conditional, lease).addCallback(self._decided, conditional, lease)

    def _decided(self, decision: Decision, conditional: ConditionalChange, lease: Wanted | None) -> Decision:
        """Announce a conditional change that is stored now, and note its lease."""
        change = conditional.change
        topic = change.topic
        if lease is not None and decision.succeeded:
            given = evolve(lease.of(change), revision=decision.revision)
            # A repetition was stored with a lease before: it may be that of an earlier Session.
            if decision.verdict is Verdict.PRESENT:
                self.leases.give(given)
            else:
                self.leases.note(given)
        if decision.verdict is Verdict.STORED:
            kind = self._count_decided(change, decision.revision)
            if self._conditional.pending:  # others that were submitted before and are decided later are overtaken
                self._conditional.note(topic, decision.revision)
            self.last = evolve(change, revision=decision.revision)
            if not decision.overtaken:  # else a newer change was announced before
                self.feed.announce(Change(topic, decision.revision, kind, change.origin, True, COMMITTED))
        return decision

    @property
    def retains_together(self) -> bool:
        """False if :meth:`retain` has to decide about each message now.

        That is with a rate or with quotas (other than those of policies), while replays run, and while conditional
        changes wait for their decision.
        """
        return not (self.admission.decides_each or len(self.feed) or self._conditional.pending)

    def retain_together(
        self, topics: Sequence[str], payloads: Sequence[bytes], qos: int, client_id: str, username: str | None
    ) -> CommitTicket | None:
        """Store messages of one Client with one ticket: none has properties or an empty payload.

        Returns None, without any effect, if :meth:`retain` has to decide about each: if one is too long, or if
        publishers would have to be paused among them.
        """
        longest = max(map(len, topics))
        if not self.admission.are_short(longest, max(map(len, payloads))):
            return None
        count = len(topics)
        if self.store.room < sum(map(len, payloads)) + count * (HELD_ENTRY + longest + 1):
            return None
        now = self._now()
        revisions = self.store.next_revisions(count)
        changes = RetainedChanges(
            topics, payloads, revisions, qos, client_id, username, now, self.admission.expires_at(None, now)
        )
        self.changes[ChangeKind.SET] += count
        ticket: CommitTicket = self.store.put_together(changes)
        if self._leased:
            for topic, revision in zip(topics, revisions, strict=True):
                self.leases.changed(topic, revision)
        return ticket

    def merging(self, revision: int) -> None:
        """Prepare for changes that :meth:`SQLRetainedStore.merge` makes in the store, up to a revision.

        Replays that read from now on see them as soon as they are committed, which is before :meth:`merged` is called.
        Until then the ledger trusts no budget.
        """
        self.admission.suspend()
        self.feed.begin_import(revision)
        if self.sources is not None:
            self.sources.renew()

    def merged(self, topics: Sequence[str], revision: int) -> None:
        """Announce the changes of a merge once they are committed. ``topics`` is empty if the merge failed."""
        self.admission.resume()
        if len(self.feed):
            for topic in topics:
                self.feed.announce(Change(topic, revision, ChangeKind.SET, ChangeOrigin.IMPORT, False, COMMITTED))
        self.feed.import_ended(revision)

    @as_deferred
    async def clock_moves(self, step: int, since: int) -> None:
        """Let the messages stored at ``since`` or later expire later by ``step`` (milliseconds): the clock will jump.

        New messages too, until :meth:`clock_moved`: the time of day is still the old one. Fires when they do. While
        the database is away, it waits.
        """
        self.admission.lead = step
        upto = self.store.next_revision()
        after: str | None = ""
        while after is not None:
            try:
                after = await self.store.move_expiry(step, since, upto, after, _MOVED_ROWS)
            except StorageFailure as failure:
                self._log_throttle.log("clock", f"times of expiry cannot be moved yet: {failure}")
                await deferLater(self._clock, _AGAIN)

    def clock_moved(self) -> None:
        """Store messages with their own times of expiry again: the clock has jumped."""
        self.admission.lead = 0

    def drop(self, message: ApplicationMessage, dropped: Callable[[], None]) -> CommitTicket:
        """Clear the topic of a message that was refused: no retained message is better than a stale one.

        Calls ``dropped`` if there was a message, when its tombstone is committed.

        The writer's transaction looks whether there is a message. So a topic without one gets no tombstone, however
        many of its messages are refused. Running replays leave out the older message at once.
        """
        topic = message.topic
        if not self.admission.may_have(topic):
            return COMMITTED
        change = self._change(evolve(message, payload=b""), self._now(), ChangeOrigin.LIMIT)
        clear = ConditionalChange(change, Conditions(present=True), NO_PROPERTIES, repeated=False)
        self.last = change
        ticket = self.store.put_if(clear)

        def settled(failure: StorageFailure | None) -> None:
            if failure is None and clear.outcome is not None and clear.outcome.verdict is Verdict.STORED:
                self._count_decided(change, change.revision)
                dropped()

        ticket.when_settled(settled)
        self._tell(change, ChangeKind.CLEAR, ticket)
        return ticket

    def retain_later(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Let a message that :meth:`retain` has just refused for the publish rate wait until the rate allows it.

        It is sent to present subscribers now. The ticket is for the acknowledgement. Its quotas are charged now. During
        an import it is stored at once, and its token is owed.
        """
        self.admission.charge(message)
        change = self.last = self._change(message, self._now(), origin)
        self.changes[ChangeKind.SET] += 1
        ticket = self.delayed.add_for_rate(change, message.client_id or "", message.qos > 0)
        if self.admission.is_suspended:
            self.delayed.write_topic(change.topic)
        self._tell(change, ChangeKind.SET, self.delayed.ticket_of(change.topic) if len(self.feed) else COMMITTED)
        return ticket

    def _tell(self, change: RetainedChange, kind: ChangeKind, ticket: CommitTicket) -> None:
        """Tell others of a change that does not pass :meth:`_put`, and that subscribers have been sent, or are sent."""
        if self._conditional.pending:
            self._conditional.note(change.topic, change.revision)
        if len(self.feed):
            self.feed.announce(Change(change.topic, change.revision, kind, change.origin, True, ticket))

    def _count_decided(self, change: RetainedChange, revision: int) -> ChangeKind:
        """Count a change that the writer's transaction has decided to store, with this revision."""
        kind = ChangeKind.CLEAR if change.message is None else ChangeKind.SET
        self.changes[kind] += 1
        if change.topic in self._leased:
            self.leases.changed(change.topic, revision)
        if kind is ChangeKind.CLEAR:
            self.admission.cleared(change.topic)
        return kind

    @property
    def refuses_replays(self) -> bool:
        """Whether subscriptions that need a replay are refused now, because the store cannot be read."""
        return self.admission.limits.refuse_unavailable and not self.store.available

    def make_room(self) -> Deferred[bool]:
        """Remove some expired messages if there are quotas, which would count them; return whether more may be left."""
        return self._sweep.make_room() if self.admission.limits.has_quotas else succeed(False)

    def change_limits(self, limits: RetainerLimits, announce_expiry: bool) -> None:
        """Use other limits from now on. ``announce_expiry`` holds for topics whose policy says nothing.

        Policies, the publish rate and the quotas of payers stay as they are.
        """
        self.admission.change_limits(limits)
        limits = self.admission.limits
        self._sweep.change_limits(limits)
        self._announces_expiry = announce_expiry
        self._sweep.announce(self.admission.policies.announces(announce_expiry))

    def change_policies(self, policies: Policies) -> None:
        """Use other policies for new messages."""
        if policies.policies != self.admission.policies.policies:
            self.admission.change_policies(policies)
            self._sweep.change_policies(policies)
            self.delayed.write()  # the new policies may not delay them any more
            self._sweep.announce(policies.announces(self._announces_expiry))
            self.policies_changed()

    def _change(self, message: ApplicationMessage, now: int, origin: ChangeOrigin) -> RetainedChange:
        """Return the change with a new revision that a message makes: a clear if its payload is empty."""
        topic, client_id, username = message.topic, message.client_id, message.username
        revision = self.store.next_revision()
        retained = None
        if message.payload:
            expires_at = self.admission.expires_at(message.expires_at, now, topic)
            retained = RetainedMessage(
                topic, message.payload, message.qos, message.properties, client_id, username, now, expires_at, revision
            )
        return RetainedChange(topic, revision, now, retained, client_id, username, origin, message.operator)

    def _clear(self, message: ApplicationMessage, now: int, origin: ChangeOrigin, live: bool) -> CommitTicket:
        change = self._change(message, now, origin)
        self.admission.cleared(message.topic)
        return self._put(change, ChangeKind.CLEAR, origin, live)

    def _put(self, change: RetainedChange, kind: ChangeKind, origin: ChangeOrigin, live: bool) -> CommitTicket:
        ticket = self.store.put(change)
        self.last = change
        if self._leased:
            self.leases.changed(change.topic, change.revision)
        self.changes[kind] += 1
        if live and self._conditional.pending:
            self._conditional.note(change.topic, change.revision)
        if not live:
            self.feed.note_unsent(change.revision)
        if len(self.feed):
            stored = ticket
            if ticket.settled and ticket.failure is None:
                # With durability "async" the change is acknowledged before it is committed. Replays need the commit.
                # Asked for after this turn: the row and its deliveries must stay in one commit group.
                stored = CommitTicket()
                self._clock.callLater(0, self._settle_when_flushed, change.topic, stored)
            self.feed.announce(Change(change.topic, change.revision, kind, origin, live, stored))
        return ticket

    def _delayed(self, change: RetainedChange, origin: ChangeOrigin) -> bool:
        """Let a message with QoS 0 wait if its policy allows it, and nobody needs it in the store now."""
        policy = self.admission.policies.of(change.topic)
        if (
            policy is None
            or not policy.write_interval
            or origin is not ChangeOrigin.PUBLISH
            or self._conditional.pending
            or self.admission.is_suspended
            or change.topic in self._leased  # its lease ends in the commit of this change
            or not self.delayed.add(change, policy.write_interval)
        ):
            return False
        self.last = change
        self.changes[ChangeKind.SET] += 1
        if len(self.feed):
            self._tell(change, ChangeKind.SET, self.delayed.ticket_of(change.topic))
        return True

    def _put_waiting(self, change: RetainedChange) -> CommitTicket:
        """Store a change that has waited, and was announced when it came."""
        if self._leased:
            self.leases.changed(change.topic, change.revision)
        return self.store.put(change)

    def _settle_when_flushed(self, topic: str, ticket: CommitTicket) -> None:
        self.store.flushed(topic).when_settled(ticket.settle)

    def _counted(self) -> None:
        """Take note that the store has counted stored messages for quotas that are new."""
        self.admission.renew()

    def _expired(self, topics: Sequence[str]) -> None:
        self.changes[ChangeKind.EXPIRE] += len(topics)
        for topic in topics:
            self.admission.cleared(topic)
            # A conditional change that waits is newer: its commit follows this one.
            revision = self.store.next_revision()
            self.feed.announce(Change(topic, revision, ChangeKind.EXPIRE, ChangeOrigin.EXPIRY, True, COMMITTED))
