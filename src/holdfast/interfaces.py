"""The seams between Holdfast's layers, and the values that cross them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from holdfast.messages import ApplicationMessage, RetainedChange, RetainedMessage
from holdfast.tickets import CommitTicket
from holdfast.wire.reasons import ReasonCode

if TYPE_CHECKING:
    from attrs import frozen
else:  # immutable to the type checker, cheap at run time
    from attrs import define as frozen


# --- the retained store ---------------------------------------------------------------------------------------------


@frozen
class Selection:
    """Which retained messages a replay asks for, and in which form.

    ``protocol_version`` (3, 4 or 5) picks the packets' form. Rows written by ``node`` with a revision above
    ``not_after`` are left out (their changes were delivered live), so are rows expired at ``now`` (milliseconds),
    rows published by the Client ``except_client`` (No Local) and packets longer than ``max_packet_size`` bytes.
    """

    topic_filter: str
    protocol_version: int
    not_after: int
    node: int
    now: int
    except_client: str | None = None
    max_packet_size: int | None = None


@frozen
class Slice:
    """Consecutive retained messages in topic order, ready for the wire.

    ``packets`` is the concatenation of ``count`` PUBLISH packets with QoS 0 and RETAIN 1; ``last`` is the last topic.
    ``qos`` holds each message's stored QoS (one byte of value 0, 1 or 2 per packet) and ``expires_at`` each message's
    expiry in milliseconds since the epoch (0 for never). Both are empty when not asked for *and* no packet of the
    slice carries an expiry that must be rewritten. ``soonest_expiry`` is the first moment (milliseconds since the
    epoch, 0 for never) at which a message of the slice expires: from then on the slice is not to be delivered.
    """

    last: str
    count: int
    packets: bytes
    qos: bytes = b""
    expires_at: tuple[int, ...] = ()
    soonest_expiry: int = 0


@frozen
class Batch:
    """One read of the store: slices in topic order, where to go on, and whether nothing is left.

    ``after`` may lie beyond the last slice's topic: a bounded scan that found nothing still makes progress.
    """

    slices: Sequence[Slice]
    after: str
    done: bool


@frozen
class Listed:
    """A retained message as it is listed: its payload only if asked for, else empty. ``size`` is that in bytes."""

    message: RetainedMessage
    size: int


@frozen
class Listing:
    """Some of the messages asked for, in topic order, where to go on, and whether nothing is left.

    ``after`` may lie beyond the last one's topic: a bounded scan that found nothing still makes progress.
    """

    entries: Sequence[Listed]
    after: str
    done: bool


@frozen
class Standing:
    """How a topic stands: when it changed last (milliseconds since the epoch), and what is retained, if anything.

    The payload is not among it.
    """

    changed_at: int
    listed: Listed | None


@frozen
class RetainedStatistics:
    """How much is retained: committed messages (no tombstones) and the bytes of their payloads."""

    count: int
    payload_bytes: int


@frozen
class Usage:
    """How much is retained: messages and the bytes of their payloads; of a single one, also by which Client."""

    messages: int
    bytes: int
    client_id: str | None = None


NOTHING = Usage(0, 0)


@frozen
class Seen:
    """What a look at the store has found: topics in which nothing is retained are not among ``topics``."""

    total: Usage
    topics: Mapping[str, Usage]
    filters: Mapping[str, Usage]
    clients: Mapping[str, Usage]


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

    def standing(topics: Sequence[str]) -> Deferred[Mapping[str, Standing]]:
        """Return how these topics stand, as of the last commit; topics never retained are not among the answer."""

    def look(topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str]) -> Deferred[Seen]:
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


@frozen
class ReplayForm:
    """In which form a subscriber takes its replay (see :class:`Selection`), under its present options."""

    protocol_version: int
    detailed: bool
    except_client: str | None = None
    max_packet_size: int | None = None


class IDelivery(Interface):
    """The subscriber's end of a replay: says how much room it has, and takes packets."""

    client_id = Attribute("The subscriber's Client Identifier.")

    def form() -> ReplayForm:
        """Return the form in which the next read is wanted."""

    def room() -> int:
        """Return how many messages may be delivered now. At 0, the replay rests until it is woken."""

    def is_leaving(after: str, last: str) -> bool:
        """Tell whether a replayed message still waits to leave, of a topic that matches, after one and up to another.

        The replay is woken when it has left.
        """

    def awaits_commits() -> bool:
        """Tell whether a message taken now may leave after a commit only, behind all that waits for one."""

    def yield_to_queue() -> None:
        """Have no room until all that waits for the subscriber now has been sent."""

    def deliver(messages: Slice) -> None:
        """Take a slice of at most ``room()`` messages, read in the form asked for last."""

    def finished() -> None:
        """Take note that everything has been delivered."""

    def failed(error: BaseException) -> None:
        """Take note that the store could not be read: the replay is over and incomplete."""

    def cancelled() -> None:
        """Take note that an operator has ended the replay: it is over and incomplete."""


# --- who may do what ------------------------------------------------------------------------------------------------


@frozen
class Credentials:
    """What a Client presents in CONNECT, and the listener it came through."""

    client_id: str
    username: str | None
    password: bytes | None
    listener: str
    protocol_version: int


@frozen
class Principal:
    """Who a Network Connection acts for, once authenticated."""

    client_id: str
    username: str | None


class IAuthenticator(Interface):
    """Decides who may connect."""

    def authenticate(credentials: Credentials) -> Principal | ReasonCode | Deferred[Principal | ReasonCode]:
        """Return the Principal, or the Reason Code of the refusal, now or later."""


@frozen
class Challenge:
    """The exchange goes on: what the Server says next to the Client (None for no Authentication Data)."""

    data: bytes | None


@frozen
class Authenticated:
    """The exchange is over: who the Client is, and the Server's last word to it."""

    principal: Principal
    data: bytes | None = None


#: what an exchange answers to the Client's Authentication Data
AuthenticationStep = Challenge | Authenticated | ReasonCode


class IAuthenticationExchange(Interface):
    """One run of an Authentication Method with one Client."""

    def step(data: bytes | None) -> AuthenticationStep | Deferred[AuthenticationStep]:
        """Take the Client's next Authentication Data; return what follows, or the Reason Code of the refusal.

        Not called again before it has answered, nor after it has answered with anything but a Challenge. Whatever a
        Client may send, it is answered: an exception counts as a failure of this broker.
        """


class IEnhancedAuthenticator(Interface):
    """Decides who may connect by Authentication Methods, each an exchange of AUTH packets [MQTT5-4.12]."""

    def begin(method: str, credentials: Credentials) -> IAuthenticationExchange | None:
        """Return a new exchange, None where this Authentication Method is not offered.

        Also called for each re-authentication of a Client, with the same method and credentials as before.
        """


class IAuthorizer(Interface):
    """Decides what a Principal may do. Every method answers True or False, now or later."""

    checks_delivery = Attribute("False when may_receive is always True, so that it need not be asked per message.")

    def may_publish(principal: Principal, topic: str, qos: int, retain: bool) -> bool | Deferred[bool]:
        """May it publish this (also as a Will Message)?"""

    def may_subscribe(principal: Principal, topic_filter: str, qos: int) -> bool | Deferred[bool]:
        """May it subscribe to this Topic Filter (a shared subscription's without its $share prefix)?"""

    def may_receive(principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """May this Application Message be delivered to it? Of a replayed one it is not said who has published it."""
