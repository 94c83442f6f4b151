"""The interface of a store of retained messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from holdfast.messages import RetainedChange, RetainedMessage
from holdfast.retained.store.values import Batch, Listing, RetainedStatistics, Selection, TopicState, UsageSnapshot
from holdfast.tickets import CommitTicket


class IRetainedStore(Interface):
    """Where retained messages live. All methods are called in the reactor thread."""

    shared = Attribute("Whether other nodes may write there too.")
    node = Attribute("This broker's node id (1..255): the low byte of its revisions.")
    available = Attribute("False while the database is away, as far as is known.")
    reads_ahead = Attribute("Whether reading takes its time elsewhere: it is worth asking before the answer is needed.")

    def next_revision() -> int:
        """Stamp a change: strictly increasing, also across restarts and clock steps."""

    def put(change: RetainedChange) -> CommitTicket:
        """Store a change (last one wins per topic, by revision). Settled when durable."""

    def flushed() -> CommitTicket:
        """A ticket settled when everything put before is committed or refused."""

    def read(
        selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read at most ``rows`` committed messages after the topic ``after`` ("" for the beginning).

        The answer is cut in slices of at most ``slice_rows`` and holds at most ``max_bytes`` of packets, except that
        a single message larger than that comes alone. ``detailed`` asks for QoS and expiry of every message.
        """

    def get(topic: str) -> Deferred[RetainedMessage | None]:
        """Return the committed retained message of exactly this topic, expired or not."""

    def listing(selection: Selection, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List at most ``rows`` committed messages after the topic ``after``, with their payloads if asked for.

        They weigh at most ``max_bytes`` together, except that a single message heavier than that comes alone. The
        selection's filter may be :data:`holdfast.topics.EVERY_TOPIC`; its form is of no account.
        """

    def topic_states(topics: Sequence[str]) -> Deferred[Mapping[str, TopicState]]:
        """Return how these topics stand, as of the last commit; topics never retained are not among the answer."""

    def read_usage(
        topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str]
    ) -> Deferred[UsageSnapshot]:
        """Count what is retained, expired or not, behind everything put before: in all, and in each of these.

        Topic Filters and Clients are counted only where the store was made for that. Fails with
        :class:`StorageFailure`.
        """

    def count_usage(limit: int) -> Deferred[bool]:
        """Count the next so many topics for what has been counted never before; tell whether any may be left."""

    def cap_expiry(lifetime: int, never_too: bool, after: str, limit: int) -> Deferred[str | None]:
        """Let messages expire at most ``lifetime`` (milliseconds) after they were stored, ``limit`` topics at a time.

        With ``never_too`` also those that would never expire. Goes on after a topic ("" for the beginning); returns
        the last one looked at, None at the end.
        """

    def expire(now: int, limit: int) -> Deferred[Sequence[str]]:
        """Turn at most ``limit`` rows expired at ``now`` (milliseconds) into tombstones; return their topics."""

    def purge(before: int, limit: int) -> Deferred[int]:
        """Delete at most ``limit`` tombstones older than ``before`` (milliseconds); return how many."""

    def statistics() -> RetainedStatistics:
        """Return how much is retained as of the last commit, without touching the store."""
