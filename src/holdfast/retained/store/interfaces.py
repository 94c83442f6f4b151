"""The interfaces of a store of retained messages, of its scans, and of what records its changes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from holdfast.core.messages import ChangeOrigin, RetainedChange, RetainedChanges, RetainedMessage
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.policies import ICountedPolicies
from holdfast.retained.store.conditional import ConditionalChange
from holdfast.retained.store.rows import Row
from holdfast.retained.store.values import (
    Batch,
    BelowTally,
    Census,
    ExpiredPosition,
    FoundPart,
    ListedMessage,
    Listing,
    RankedPart,
    RetainedStatistics,
    Search,
    Selection,
    Sorting,
    Stop,
    Survey,
    TallyPart,
    UsageSnapshot,
)
from holdfast.storage.driver import Cursor


class IRetainedScans(Interface):
    """Reads committed messages for operators. Each call looks at ``rows`` rows at most, tombstones among them.

    ``after`` is the topic of the part before, "" for the beginning. A Deferred fails with
    :class:`holdfast.core.tickets.StorageFailure` if the database cannot be read. It can be cancelled.
    """

    def tally(search: Search, after: str, rows: int) -> Deferred[TallyPart]:
        """Count matching messages."""

    def search(
        search: Search, after: str, rows: int, limit: int, max_bytes: int, payloads: bool
    ) -> Deferred[FoundPart]:
        """Find at most ``limit`` matching messages, of ``max_bytes`` together; a longer one is a part of its own."""

    def rank(search: Search, sorting: Sorting, after: str, rows: int, limit: int) -> Deferred[RankedPart]:
        """Find the first ``limit`` places among the matching messages."""

    def listed(search: Search, topics: Sequence[str], beginning: int = 0) -> Deferred[Sequence[ListedMessage]]:
        """Read messages of these topics in topic order, each with the first ``beginning`` bytes of its payload.

        The topics match the Topic Filter already.
        """

    def level(base: str, low: str, rows: int, now: int) -> Deferred[Sequence[Stop]]:
        """Walk through the level below ``base`` ("" or a topic with a separator at its end), from ``low`` on.

        The walk stops at most ``rows`` times: at each topic of the level, and at the first topic below each name.
        Fewer stops than ``rows`` mean that the level has no more.
        """

    def parents(base: str, topic: str, now: int) -> Deferred[Sequence[Stop]]:
        """Read the rows of this level whose topics are beginnings of a topic, shortest first; the topic is not one.

        Example: of the topics ``a``, ``a!`` and ``a!/b``, those before ``a!!`` are ``a`` and ``a!``.
        """

    def below(topics: Sequence[str], rows: int, now: int) -> Deferred[Sequence[BelowTally]]:
        """Count the messages below each of these topics, looking at ``rows`` rows below each."""


# The interface of a store of retained messages.


class ICommitWatcher(Interface):
    """Is told of committed changes of this node, in the order of their commits, in the reactor thread."""

    def written(rows: Sequence[Row]) -> None:
        """Take rows as they were committed, of messages and of tombstones."""

    def expired(topics: Sequence[str], at: int, revision: int) -> None:
        """Take topics whose messages have expired; ``at`` is in milliseconds since the epoch."""


class IReplaySource(Interface):
    """What a replay reads. All methods are called in the reactor thread.

    A Deferred fails with :class:`holdfast.core.tickets.StorageFailure` if the database cannot be read.
    """

    shared = Attribute("Whether other nodes may write to the same store.")
    node = Attribute("This broker's node id (1..255): the low byte of its revisions.")
    reads_ahead = Attribute("Whether reads run in another thread, so that a replay gains by reading ahead.")
    reads_slices = Attribute("Whether a read brings at most the bytes of one slice.")

    surveyed = Attribute("Whether surveys judge the publishers of the messages. Else replays judge each of them.")
    tells_clears = Attribute("Whether empty messages say of topics that nothing is retained any more.")

    def next_revision() -> int:
        """Return the revision for a change: strictly increasing, also across restarts and clock steps."""

    def flushed(topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return a ticket that is settled when all earlier changes of a Topic Filter are committed or refused."""

    def read(
        selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read at most ``rows`` committed messages after the topic ``after`` ("" for the beginning).

        The batch has slices of at most ``slice_rows`` messages, and at most ``max_bytes`` of packets. A message longer
        than ``max_bytes`` is a batch of its own. ``detailed`` adds the QoS and the expiry of every message.
        """


class IRetainedStore(IReplaySource):
    """Stores retained messages. All methods are called in the reactor thread.

    A Deferred fails with :class:`holdfast.core.tickets.StorageFailure` if the database cannot be read or written.
    """

    unsent_revision = Attribute("The highest stored revision of a change that may not have been sent live.")
    available = Attribute("False if the last access to the database failed.")

    scans = Attribute("The reads of operators over many rows: an IRetainedScans.")

    delayed = Attribute("The IDelayedChanges that wait to be put; readers of all earlier changes have them put first.")

    room = Attribute("How many bytes of changes may be put before publishers are paused.")

    def next_revisions(count: int) -> Sequence[int]:
        """Return revisions for ``count`` changes (1 or more), in order."""

    def put(change: RetainedChange) -> CommitTicket:
        """Store a change; the ticket is settled when it is durable. For each topic, the highest revision wins."""

    def put_if(change: ConditionalChange) -> CommitTicket:
        """Store a change if its conditions hold then. Its outcome is set before the ticket is settled."""

    def put_together(changes: RetainedChanges) -> CommitTicket:
        """Store changes with one ticket; a :class:`RunTicket` if they may have different outcomes."""

    def survey(after: str, limit: int, guests: bool, newer_than: int = 0) -> Deferred[Survey]:
        """Read who published the committed messages of the ``limit`` topics after a topic ("" for the beginning).

        Messages without a User Name are left out unless ``guests`` asks for them, and those up to a revision.
        """

    earlier_survey = Attribute("The EarlierSurvey of the process before, as it was at the opening; None if unknown.")

    def keep_survey(fingerprint: str, judged: int | None) -> Deferred[None]:
        """Keep for the next process that no message is withheld, after all earlier changes.

        All messages up to the revision ``judged`` were judged; None: all that are stored then.
        """

    def get(topic: str) -> Deferred[RetainedMessage | None]:
        """Return the committed retained message of this topic, also if it has expired; None if there is none."""

    def last_change(topic: str) -> Deferred[tuple[int, RetainedMessage | None]]:
        """Return the revision of the last committed change of a topic, and its message, None if it was a clear.

        The revision is 0 if no change is known: the topic was never set, or cleared so long ago that this is forgotten.
        """

    def listing(selection: Selection, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List at most ``rows`` committed messages after the topic ``after``, with or without their payloads.

        Together they have at most ``max_bytes``; a longer message is a listing of its own. The selection's filter may
        be :data:`holdfast.core.topics.EVERY_TOPIC`; its protocol version has no effect.
        """

    def read_usage(
        topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str], payers: Sequence[str] = ()
    ) -> Deferred[UsageSnapshot]:
        """Return the usage in all, of topics, Topic Filters, Clients and payers, after all earlier changes.

        Expired messages count until the sweep removes them. Topic Filters, Clients and payers are counted only if they
        have quotas (:meth:`count_quotas`; payers: since the store was created).
        """

    def count_quotas(topic_filters: Sequence[str], clients: bool, policies: ICountedPolicies) -> Deferred[None]:
        """Begin to count for these quotas of Topic Filters, policies and, with ``clients``, each Client; for no others.

        :meth:`count_usage` counts the stored messages of new scopes.
        """

    def count_usage(limit: int) -> Deferred[bool]:
        """Count the next ``limit`` topics for quotas that are new; tell whether topics may be left."""

    def cap_expiry(lifetime: int, never_too: bool, after: str, limit: int) -> Deferred[str | None]:
        """Let messages expire at most ``lifetime`` (milliseconds) after they were stored, for ``limit`` topics.

        ``never_too`` includes messages without an expiry. Begins after the topic ``after`` ("" for the beginning);
        returns the topic to continue after, None at the end.
        """

    def move_expiry(step: int, since: int, upto: int, after: str, limit: int) -> Deferred[str | None]:
        """Let messages of this node expire later by ``step``, for ``limit`` topics: the clock is about to jump.

        They are those that this process has stored, at ``since`` or later (an import may tell an earlier time), with
        revisions up to ``upto``. The time at which they were stored moves too. All times are in milliseconds. The
        arguments ``after`` and ``limit``, and the result, are those of :meth:`cap_expiry`.
        """

    def expire(now: int, limit: int) -> Deferred[Sequence[str]]:
        """Turn at most ``limit`` messages expired at ``now`` (milliseconds) into tombstones; return their topics."""

    def take_sweep() -> Deferred[bool]:
        """Tell whether this node may sweep now, until :meth:`give_sweep_back`: one node of a database at a time."""

    def give_sweep_back() -> Deferred[bool]:
        """Let other nodes sweep."""

    def purge(before: int, limit: int) -> Deferred[int]:
        """Delete at most ``limit`` tombstones older than ``before`` (milliseconds); return their number."""

    def census(now: int, after: ExpiredPosition | None, limit: int) -> Deferred[Census]:
        """Read the totals of all nodes, and count at most ``limit`` messages expired at ``now`` (milliseconds).

        The totals include expired messages until the sweep removes them. The count begins after a position (None: at
        the beginning).
        """

    def statistics() -> RetainedStatistics:
        """Return the totals without reading the database: those at the opening, changed by the commits of this node.

        Where other nodes write to the same store, only :meth:`census` knows the totals.
        """


# The seam between the store and the history: the store tells a recorder about every change, before it commits.
#
# The store knows only this interface. The history's recorder is
# :class:`holdfast.changes.recording.HistoryRecorder`; a store without a history has :data:`NO_RECORDER`.


class ChangedRow(NamedTuple):
    """One change: the row to store, the time of the change (milliseconds since the epoch), its origin and operator."""

    row: Row
    changed_at: int
    origin: ChangeOrigin
    operator: str | None = None


class Recorder(Protocol):
    """Records changes. All methods but :meth:`key_of` run in the writer's thread, inside the changing transaction."""

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of a change that waits for its commit. A later change with the same key replaces it."""

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Record changes in this order. The store left out changes that lost to a newer row.

        A commit whose outcome was unknown is repeated, so the same change can arrive twice.
        """

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Record the present rows of these topics. This transaction has changed them in place."""

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Record that the messages of these topics expired."""


class NullRecorder:
    """Records nothing."""

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the topic: without a history, only the newest waiting change of a topic is written."""
        return topic

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Do nothing."""

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Do nothing."""

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Do nothing."""


NO_RECORDER = NullRecorder()
