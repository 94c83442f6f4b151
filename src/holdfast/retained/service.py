"""The retainer: the entrance to retained messages for Sessions.

It stamps each change, checks it against the limits, gives it to the store and announces it to the change feed. It
starts replays, and the sweep of expired messages. A message that passes here:

    undecided    a quota may be reached: the caller waits while the ledger reads the store (``quota.py``)
    retain       refused with RetainRefused, or given to the store; the ticket is settled when it is durable
    _put         announced to the feed, so that running replays drop older copies (``replay/replay.py``)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import Attribute, Interface, implementer

from holdfast.core.extensions import Conditions
from holdfast.core.messages import (
    HELD_ENTRY,
    ApplicationMessage,
    ChangeKind,
    ChangeOrigin,
    RetainedChange,
    RetainedChanges,
    RetainedMessage,
)
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure, both
from holdfast.core.units import Rate, TokenBucket
from holdfast.retained.changes.feed import Change, ChangeFeed
from holdfast.retained.changes.since import ChangesSince
from holdfast.retained.compare_and_set import CompareAndSets, Decision
from holdfast.retained.delayed_writes import DelayedWrites
from holdfast.retained.leases import LeaseBook, LeaseRows, NoLeaseRows, Wanted
from holdfast.retained.limits import FlowSettings, Limit, PayerLimits, RetainerLimits, RetainRefused, size_refusal
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.quota import Ledger
from holdfast.retained.replay.interfaces import IDelivery, IPast
from holdfast.retained.replay.pace import FlowControl
from holdfast.retained.replay.registry import ReplayRegistry
from holdfast.retained.replay.replay import Replay
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.conditional import ConditionalChange, Verdict
from holdfast.retained.store.interfaces import IReplaySource, IRetainedStore
from holdfast.retained.store.values import QueuedRows, RetainedStatistics
from holdfast.retained.sweep import ExpiryNotices, INoticePublisher, Sweep
from holdfast.retained.totals import TotalsReader
from holdfast.scheduling.waiting import as_deferred
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_sentence, client_text
from holdfast.wire.properties import NO_PROPERTIES


class IRetainedMessages(Interface):
    """The retainer as Sessions see it."""

    on_limit = Attribute("The policy for messages that are refused.")

    def undecided(message: ApplicationMessage) -> Deferred[None] | None:
        """Return None if :meth:`retain` can decide about the message now.

        Otherwise the store has to be read first: call :meth:`retain` when the Deferred fires, in the same turn.
        """

    def retain(
        message: ApplicationMessage, origin: ChangeOrigin, live: bool = True, lease: Wanted | None = None
    ) -> CommitTicket:
        """Store the message, or clear its topic if the payload is empty. Raises :class:`RetainRefused`.

        A message that was not given to :meth:`undecided` first is refused unless it certainly fits. ``live`` tells that
        it is also sent to present subscribers. Its ``lease`` is stored with it.
        """

    def retain_if(
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

    def present(topic: str) -> Deferred[RetainedMessage | None]:
        """Read the committed retained message of a topic, also if it has expired."""

    enabled = Attribute("Whether messages are stored at all.")
    leases = Attribute("The leases of this node: a LeaseBook.")
    forces = Attribute("Tells whether a topic is retained without RETAIN 1; None: no topic is.")

    retains_together = Attribute("False if :meth:`retain` has to decide about each message now.")

    def is_plain(topic: str) -> bool:
        """Tell whether :meth:`retain_together` takes the topic: no policy applies to it."""

    def retain_together(
        topics: Sequence[str], payloads: Sequence[bytes], qos: int, client_id: str, username: str | None
    ) -> CommitTicket | None:
        """Store messages of one Client with one ticket: none has properties or an empty payload.

        Returns None, without any effect, if :meth:`retain` has to decide about each. Called only if
        ``retains_together``, and for topics that are plain.
        """

    def refused(message: ApplicationMessage, refusal: RetainRefused, outcome: str) -> None:
        """Count and log a message that is not retained. ``outcome`` describes its treatment instead."""

    def drop(message: ApplicationMessage, dropped: Callable[[], None]) -> CommitTicket:
        """Clear the older message of a topic whose new message was refused, and is delivered.

        Calls ``dropped`` if there was one, when its tombstone is committed.
        """

    def retain_later(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Store a message that :meth:`retain` has just refused for the publish rate, once the rate allows it.

        It is also sent to present subscribers. The ticket is for the acknowledgement.
        """

    def room_to_wait(publisher: str) -> Deferred[None] | None:
        """Return None unless too much of a publisher (a Client Identifier) waits for the publish rate.

        Otherwise its Client is not to be read until the Deferred fires.
        """

    def replay(
        topic_filter: str,
        delivery: IDelivery,
        cursor: str = "",
        start: int = 0,
        queued: QueuedRows | None = None,
        source: IReplaySource | None = None,
    ) -> Replay:
        """Start to deliver the messages that match a (non-shared) Topic Filter, after the topic ``cursor``.

        Changes up to the revision ``start`` (0: now) are delivered, except the ``queued`` ones. With a ``source``, its
        messages are delivered.
        """

    def next_revision() -> int:
        """Return a revision above those of all changes so far."""

    def count_waiting(difference: int) -> None:
        """Count replays that wait in their Sessions."""

    past = Attribute("Where replays read the past: an IPast, None without a history.")
    since = Attribute("What has changed since a token: a ChangesSince, None if changes are not stored.")
    max_replays_per_client = Attribute("How many replays of one Session may run.")
    unsent_revision = Attribute("The highest revision of a change that was not sent live.")

    def statistics() -> RetainedStatistics:
        """Return the number and bytes of retained messages, as they were read last; they are then read anew."""

    refuses_replays = Attribute("Whether subscriptions that need a replay are refused now.")


#: the topics that one transaction looks at when the clock jumps
_MOVED_ROWS = 1000
#: seconds until the database is asked again
_AGAIN = 1.0
#: origins of changes that operators make
_BY_OPERATORS = frozenset((ChangeOrigin.API, ChangeOrigin.RESTORE))


@implementer(IRetainedMessages)
class RetainedMessages(Service):
    """Retained messages in a store, with limits, replays and expiry.

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
        flow: FlowSettings,
        sources: SourceCheck | None = None,
        leases: LeaseRows | None = None,
    ) -> None:
        """With ``sources``, replays judge the publishers of the messages. ``leases`` are stored there, or nowhere."""
        self.leases = LeaseBook(leases or NoLeaseRows())
        self._leased = self.leases.by_topic  # looked into for each change
        self._use(limits.policies)
        #: is called when the policies have changed
        self.policies_changed: Callable[[], None] = lambda: None
        self.feed = ChangeFeed()
        self.sources = sources
        self.replays = ReplayRegistry(
            store=store, feed=self.feed, flow=FlowControl(clock, flow), now=now, sources=sources
        )
        #: where replays read the past; None without a history
        self.past: IPast | None = None
        #: what has changed since a token; None: everything is replayed
        self.since: ChangesSince | None = None
        self._store = store
        self._clock = clock
        #: messages of topics with a ``write_interval``, until they are written
        self.delayed = store.delayed = DelayedWrites(self._put_waiting, clock, store.flushed)
        self._merges = 0  #: imports that are changing the store
        self._lead = 0  #: by how many milliseconds the clock is about to jump
        self._now = now
        self._limits = limits
        self._conditional = CompareAndSets(store, leases)
        self._totals = TotalsReader(store, clock, now)
        self._sweep = Sweep(store, clock=clock, now=now, limits=limits, expired=self._expired, counted=self._counted)
        self._announces_expiry = False  #: for topics whose policy says nothing
        self._log_throttle = LogThrottle(self._log, clock.seconds, write=self._log.warn)
        #: messages refused, by limit
        self.refusals = dict.fromkeys(Limit, 0)
        #: messages set, cleared and expired here since the start
        self.changes = dict.fromkeys(ChangeKind, 0)
        self.on_limit = limits.on_limit
        rate = limits.max_publish_rate
        self._publishing = None if rate is None else TokenBucket(rate, clock.seconds())
        self.delayed.change_rate(self._publishing)
        self._ledger: Ledger | None = None
        #: whether the ledger has to know of messages of topics without a policy
        self._counts_all = limits.counts_all
        self._use_ledger()

    def announce_expiry(self, publisher: INoticePublisher, general: bool = True) -> None:
        """Tell present subscribers when messages expire. Call it before the start.

        ``general`` holds for topics whose policy says nothing.
        """
        self._sweep.notices = ExpiryNotices(self.feed, publisher)
        self._announces_expiry = general
        self._sweep.announce(self.policies.announces(general))

    @property
    def store(self) -> IRetainedStore:
        """The store, for those who read many messages at once."""
        return self._store

    def startService(self) -> None:
        """Start to sweep expired messages, and to judge publishers."""
        Service.startService(self)
        self._sweep.start()
        if self.since is not None:
            self.since.startService()
        if self.sources is not None:
            self.sources.start()

    def stopService(self) -> None:
        """Stop sweeping and judging, and give all delayed messages to the writer."""
        Service.stopService(self)
        self.delayed.stop()
        if self.since is not None:
            self.since.stopService()
        self._sweep.stop()
        if self.sources is not None:
            self.sources.stop()

    def undecided(self, message: ApplicationMessage) -> Deferred[None] | None:
        """Return a Deferred if the store has to be read first: the message may not fit."""
        ledger = self._ledger_of(message.topic)
        if ledger is None or not message.payload or not self._limits.enable:
            return None
        if self._size_refusal(message) is not None or ledger.fits(message):
            return None
        return ledger.look(message)

    def retain(
        self, message: ApplicationMessage, origin: ChangeOrigin, live: bool = True, lease: Wanted | None = None
    ) -> CommitTicket:
        """Store the message, or clear its topic if its payload is empty [MQTT5-3.3.1-5], [MQTT5-3.3.1-6].

        A zero-byte message is never stored [MQTT5-3.3.1-7]; clears are always allowed. Raises
        :class:`RetainRefused` when a limit is reached. The topic then keeps its older message.
        """
        now = self._now()
        # Operators can remove the messages of the time before the retainer was disabled.
        if not (self._limits.enable or (origin in _BY_OPERATORS and not message.payload)):
            return COMMITTED
        if not message.payload:
            return self._clear(message, now, origin, live)
        self._check(message, origin)
        if origin is not ChangeOrigin.PUBLISH and self.sources is not None:
            if origin in _BY_OPERATORS:
                self.sources.added(message.username)
            else:
                self.sources.left(message.username)
        change = self._change(message, now, origin)
        if lease is not None:
            ticket = self._put(change, ChangeKind.SET, origin, live)
            return both(ticket, self.leases.give(lease.of(change)))
        if self._delays and not message.qos and live and self._delayed(change, origin):
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
        """Store the message, or clear its topic, if the conditions hold. Raises :class:`RetainRefused`."""
        if message.payload:
            self._check(message, ChangeOrigin.PUBLISH)
        change = self._change(message, self._now(), origin)
        conditional = ConditionalChange(change, conditions, message.properties, repeated)
        return self._conditional.submit(conditional, lease).addCallback(self._decided, conditional, lease)

    def present(self, topic: str) -> Deferred[RetainedMessage | None]:
        """Read the committed retained message of a topic, also if it has expired."""
        return self._store.get(topic)

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
            if not decision.overtaken:  # else a newer change was announced before
                self.feed.announce(Change(topic, decision.revision, kind, change.origin, True, COMMITTED))
        return decision

    def is_plain(self, topic: str) -> bool:
        """Tell whether no policy applies to a topic."""
        return not self._has_policies or self.policies.of(topic) is None

    @property
    def retains_together(self) -> bool:
        """False if :meth:`retain` has to decide about each message now.

        That is with a rate or with quotas (other than those of policies), while replays run, and while conditional
        changes wait for their decision.
        """
        return (
            not self._counts_all
            and self._publishing is None
            and not len(self.feed)
            and not self._conditional.pending
            and bool(self._limits.enable)
        )

    def retain_together(
        self, topics: Sequence[str], payloads: Sequence[bytes], qos: int, client_id: str, username: str | None
    ) -> CommitTicket | None:
        """Store messages of one Client with one ticket: none has properties or an empty payload.

        Returns None, without any effect, if :meth:`retain` has to decide about each: if one is too long, or if
        publishers would have to be paused among them.
        """
        limits = self._limits
        longest, largest = max(map(len, topics)), max(map(len, payloads))
        if 4 * longest > limits.max_topic_length or 0 < limits.max_payload_size < largest:
            return None
        count = len(topics)
        if self._store.room < sum(map(len, payloads)) + count * (HELD_ENTRY + longest + 1):
            return None
        now = self._now()
        revisions = self._store.next_revisions(count)
        changes = RetainedChanges(
            topics, payloads, revisions, qos, client_id, username, now, self._moved(self._expires_at(None, now))
        )
        self.changes[ChangeKind.SET] += count
        ticket: CommitTicket = self._store.put_together(changes)
        if self._leased:
            for topic, revision in zip(topics, revisions, strict=True):
                self.leases.changed(topic, revision)
        return ticket

    @property
    def enabled(self) -> bool:
        """Whether messages are stored at all."""
        return self._limits.enable

    @property
    def limits(self) -> RetainerLimits:
        """The limits."""
        return self._limits

    def merging(self, revision: int) -> None:
        """Prepare for changes that :meth:`SQLRetainedStore.merge` makes in the store, up to a revision.

        Replays that read from now on see them as soon as they are committed, which is before :meth:`merged` is called.
        Until then the ledger trusts no budget.
        """
        self._merges += 1
        self.replays.include(revision)
        if self.sources is not None:
            self.sources.renew()
        if self._ledger is not None:
            self._ledger.suspend()

    def merged(self, topics: Sequence[str], revision: int) -> None:
        """Announce the changes of a merge once they are committed. ``topics`` is empty if the merge failed."""
        self._merges -= 1
        if self._ledger is not None:
            self._ledger.resume()
        if len(self.feed):
            for topic in topics:
                self.feed.announce(Change(topic, revision, ChangeKind.SET, ChangeOrigin.IMPORT, False, COMMITTED))
        self.replays.included(revision)

    @as_deferred
    async def clock_moves(self, step: int, since: int) -> None:
        """Let the messages stored at ``since`` or later expire later by ``step`` (milliseconds): the clock will jump.

        New messages too, until :meth:`clock_moved`: the time of day is still the old one. Fires when they do. While
        the database is away, it waits.
        """
        self._lead = step
        upto = self._store.next_revision()
        after: str | None = ""
        while after is not None:
            try:
                after = await self._store.move_expiry(step, since, upto, after, _MOVED_ROWS)
            except StorageFailure as failure:
                self._log_throttle.log("clock", f"times of expiry cannot be moved yet: {failure}")
                await deferLater(self._clock, _AGAIN)

    def clock_moved(self) -> None:
        """Store messages with their own times of expiry again: the clock has jumped."""
        self._lead = 0

    def drop(self, message: ApplicationMessage, dropped: Callable[[], None]) -> CommitTicket:
        """Clear the topic of a message that was refused: no retained message is better than a stale one.

        The writer's transaction looks whether there is a message. So a topic without one gets no tombstone, however
        many of its messages are refused. Running replays leave out the older message at once.
        """
        topic = message.topic
        if self._ledger is not None and not self._ledger.holds(topic):
            return COMMITTED
        change = self._change(evolve(message, payload=b""), self._now(), ChangeOrigin.LIMIT)
        clear = ConditionalChange(change, Conditions(present=True), NO_PROPERTIES, repeated=False)
        ticket = self._store.put_if(clear)

        def settled(failure: StorageFailure | None) -> None:
            if failure is None and clear.outcome is not None and clear.outcome.verdict is Verdict.STORED:
                self._count_decided(change, change.revision)
                dropped()

        ticket.when_settled(settled)
        self._tell(change, ChangeKind.CLEAR, ticket)
        return ticket

    def retain_later(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Let a message that :meth:`retain` has just refused for the publish rate wait until the rate allows it.

        Its quotas are charged now. During an import it is stored at once, and its token is owed.
        """
        ledger = self._ledger_of(message.topic)
        if ledger is not None:
            ledger.charge(message)
        change = self._change(message, self._now(), origin)
        self.changes[ChangeKind.SET] += 1
        ticket = self.delayed.add_for_rate(change, message.client_id or "", message.qos > 0)
        if self._merges:
            self.delayed.write_topic(change.topic)
        self._tell(change, ChangeKind.SET, self.delayed.ticket_of(change.topic) if len(self.feed) else COMMITTED)
        return ticket

    def room_to_wait(self, publisher: str) -> Deferred[None] | None:
        """Return None unless too much of a publisher waits for the publish rate."""
        return self.delayed.room(publisher)

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
        if kind is ChangeKind.CLEAR and (ledger := self._ledger_of(change.topic)) is not None:
            ledger.cleared(change.topic)
        return kind

    def refused(self, message: ApplicationMessage, refusal: RetainRefused, outcome: str) -> None:
        """Count the refusal by limit, and log one line in ten seconds for each limit."""
        self.refusals[refusal.limit] += 1
        self._log_throttle.log(
            refusal.limit.value,
            f"{client_text(message.client_id)} may not retain {client_text(message.topic)}, {outcome}: "
            f"{client_sentence(refusal)}",
        )

    def replay(
        self,
        topic_filter: str,
        delivery: IDelivery,
        cursor: str = "",
        start: int = 0,
        queued: QueuedRows | None = None,
        source: IReplaySource | None = None,
    ) -> Replay:
        """Start to deliver the messages that match a (non-shared) Topic Filter, after the topic ``cursor``."""
        return self.replays.start(topic_filter, delivery, cursor, start, queued, source)

    def next_revision(self) -> int:
        """Return a revision above those of all changes so far."""
        return self._store.next_revision()

    def count_waiting(self, difference: int) -> None:
        """Count replays that wait in their Sessions."""
        self.replays.waiting_in_sessions += difference

    @property
    def max_replays_per_client(self) -> int:
        """How many replays of one Session may run."""
        return self.replays.flow.settings.max_replays_per_client

    @property
    def unsent_revision(self) -> int:
        """The highest revision of a change that was not sent live."""
        return self.replays.unsent_revision

    def statistics(self) -> RetainedStatistics:
        """Return the number and bytes of retained messages, without expired ones.

        With SQLite they are those of the last commit. Where other nodes may write too, they are as of the call before.
        """
        self._totals.read()
        return self._totals.latest

    @property
    def latest_statistics(self) -> RetainedStatistics:
        """The number and bytes of retained messages, as they were read last. Reads nothing."""
        return self._totals.latest

    def read_statistics(self) -> Deferred[RetainedStatistics]:
        """Read the number and bytes of retained messages of all nodes, without expired ones."""
        return self._totals.read()

    @property
    def refuses_replays(self) -> bool:
        """Whether subscriptions that need a replay are refused now, because the store cannot be read."""
        return self._limits.refuse_unavailable and not self._store.available

    def make_room(self) -> Deferred[bool]:
        """Remove some expired messages if there are quotas, which would count them; return whether more may be left."""
        return self._sweep.make_room() if self._limits.has_quotas else succeed(False)

    def change_publish_rate(self, rate: Rate | None) -> None:
        """Use another rate of messages that clients may have retained. None means unlimited."""
        self._limits = evolve(self._limits, max_publish_rate=rate)
        now = self._clock.seconds()
        if rate is None:
            self._publishing = None
        elif self._publishing is None:
            self._publishing = TokenBucket(rate, now)
        else:
            self._publishing.change(rate, now)  # a new bucket would be full again
        self.delayed.change_rate(self._publishing)

    def change_limits(self, limits: RetainerLimits, announce_expiry: bool) -> None:
        """Use other limits from now on. ``announce_expiry`` holds for topics whose policy says nothing.

        Policies, the publish rate and the quotas of payers stay as they are.
        """
        kept = self._limits
        self._limits = limits = evolve(
            limits, policies=kept.policies, max_publish_rate=kept.max_publish_rate, payers=kept.payers,
            control_characters=kept.control_characters,
        )  # fmt: skip
        self.on_limit = limits.on_limit
        self._counts_all = limits.counts_all
        if self._ledger is not None:
            self._ledger.change_limits(limits)
        self._use_ledger()
        self._sweep.change_limits(limits)
        self._announces_expiry = announce_expiry
        self._sweep.announce(self.policies.announces(announce_expiry))

    def change_policies(self, policies: Policies) -> None:
        """Use other policies for new messages."""
        if policies.policies != self.policies.policies:
            self._use(policies)
            self._limits = evolve(self._limits, policies=policies)
            self._use_ledger()
            self._sweep.change_policies(policies)
            self.delayed.write()  # the new policies may not delay them any more
            self._sweep.announce(policies.announces(self._announces_expiry))
            self.policies_changed()

    def _use(self, policies: Policies) -> None:
        """Use these policies. What each message asks is kept here: a look into the policies costs it more."""
        self.policies = policies
        #: tells whether a topic is retained without RETAIN 1; None: no topic is
        self.forces = policies.forces
        self._has_policies = bool(policies.policies)
        self._delays = policies.longest_wait > 0

    def _use_ledger(self) -> None:
        """Keep a ledger if there are quotas, for the present policies."""
        if self._ledger is not None:
            self._ledger.change_policies(self.policies)
        elif self._counts_all or self.policies.has_quotas:
            self._ledger = Ledger(self._store, limits=self._limits, sweep=self._sweep.make_room, clock=self._clock)
            for _ in range(self._merges):  # each of them resumes it
                self._ledger.suspend()

    def _ledger_of(self, topic: str) -> Ledger | None:
        """Return the ledger if a quota may count this topic: others cost as much as without quotas."""
        ledger = self._ledger
        return None if ledger is None or not (self._counts_all or self.policies.scope_of(topic)) else ledger

    def _counted(self) -> None:
        """Ask the store anew: it has counted stored messages for quotas that are new."""
        if self._ledger is not None:
            self._ledger.renew()

    def change_payers(self, payers: PayerLimits | None) -> None:
        """Use the quotas of other listeners and zones, if payers have had quotas since the start."""
        if self._ledger is not None and payers is not None:
            self._ledger.change_payers(payers)

    def _change(self, message: ApplicationMessage, now: int, origin: ChangeOrigin) -> RetainedChange:
        """Return the change with a new revision that a message makes: a clear if its payload is empty."""
        topic, client_id, username = message.topic, message.client_id, message.username
        revision = self._store.next_revision()
        retained = None
        if message.payload:
            policy = self.policies.of(topic) if self._has_policies else None
            expires_at = self._moved(self._expires_at(message.expires_at, now, policy))
            retained = RetainedMessage(
                topic, message.payload, message.qos, message.properties, client_id, username, now, expires_at, revision
            )
        return RetainedChange(topic, revision, now, retained, client_id, username, origin, message.operator)

    def _clear(self, message: ApplicationMessage, now: int, origin: ChangeOrigin, live: bool) -> CommitTicket:
        change = self._change(message, now, origin)
        ledger = self._ledger_of(message.topic)
        if ledger is not None:
            ledger.cleared(message.topic)
        return self._put(change, ChangeKind.CLEAR, origin, live)

    def _put(self, change: RetainedChange, kind: ChangeKind, origin: ChangeOrigin, live: bool) -> CommitTicket:
        ticket = self._store.put(change)
        if self._leased:
            self.leases.changed(change.topic, change.revision)
        self.changes[kind] += 1
        if live and self._conditional.pending:
            self._conditional.note(change.topic, change.revision)
        if not live:
            self.replays.note_unsent(change.revision)
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
        policy = self.policies.of(change.topic)
        if (
            policy is None
            or not policy.write_interval
            or origin is not ChangeOrigin.PUBLISH
            or self._conditional.pending
            or self._merges
            or change.topic in self._leased  # its lease ends in the commit of this change
            or not self.delayed.add(change, policy.write_interval)
        ):
            return False
        self.changes[ChangeKind.SET] += 1
        if len(self.feed):
            self._tell(change, ChangeKind.SET, self.delayed.ticket_of(change.topic))
        return True

    def _put_waiting(self, change: RetainedChange) -> CommitTicket:
        """Store a change that has waited, and was announced when it came."""
        if self._leased:
            self.leases.changed(change.topic, change.revision)
        return self._store.put(change)

    def _settle_when_flushed(self, topic: str, ticket: CommitTicket) -> None:
        self._store.flushed(topic).when_settled(ticket.settle)

    def _expires_at(self, expires_at: int | None, now: int, policy: Policy | None = None) -> int | None:
        """Return when a message expires that should expire then (milliseconds), None for never.

        It is stored with the message, so that delivery and sweep agree even if the options change later.
        """
        limits = self._limits
        interval, override = limits.msg_expiry_interval, limits.msg_expiry_interval_override
        if policy is not None:
            if policy.msg_expiry_interval is not None:
                interval = policy.msg_expiry_interval
            if policy.msg_expiry_interval_override is not None:
                override = policy.msg_expiry_interval_override or None
        if expires_at is None and interval:
            expires_at = now + round(interval * 1000)
        if override is None or (expires_at is None and limits.allow_never_expire):
            return expires_at
        latest = now + round(override * 1000)
        return latest if expires_at is None else min(expires_at, latest)

    def _moved(self, expires_at: int | None) -> int | None:
        """Return a time of expiry as it will be when the clock has jumped."""
        return expires_at + self._lead if expires_at is not None and self._lead else expires_at

    def _size_refusal(self, message: ApplicationMessage) -> RetainRefused | None:
        policy = self.policies.of(message.topic) if self._has_policies else None
        return size_refusal(self._limits, message.topic, len(message.payload), policy)

    def _check(self, message: ApplicationMessage, origin: ChangeOrigin) -> None:
        """Count the message against all limits. Raises :class:`RetainRefused` without counting it.

        The publish rate is for clients only, not for operators' calls. It refuses last: a message that waits for it
        fits into the quotas.
        """
        refusal = self._size_refusal(message)
        if refusal is not None:
            raise refusal
        ledger = self._ledger_of(message.topic)
        rate = None if origin in _BY_OPERATORS else self._publishing
        answered = message.qos > 0
        if rate is not None and (not self.delayed.may_pass(answered) or rate.wait(1, self._clock.seconds())):
            if ledger is not None:
                ledger.check(message)
            self.delayed.refused(answered)
            raise RetainRefused(Limit.PUBLISH_RATE, f"retainer.max_publish_rate is {self._limits.max_publish_rate}")
        if ledger is not None:
            ledger.charge(message)
        if rate is not None:
            rate.take(1, self._clock.seconds())
            self.delayed.passed(answered)

    def _expired(self, topics: Sequence[str]) -> None:
        self.changes[ChangeKind.EXPIRE] += len(topics)
        for topic in topics:
            ledger = self._ledger_of(topic)
            if ledger is not None:
                ledger.cleared(topic)
            # A conditional change that waits is newer: its commit follows this one.
            revision = self._store.next_revision()
            self.feed.announce(Change(topic, revision, ChangeKind.EXPIRE, ChangeOrigin.EXPIRY, True, COMMITTED))
