"""The interfaces of a replay: to its subscriber, and to the list of all replays."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Protocol, TypeVar

from attrs import frozen
from zope.interface import Attribute, Interface

from holdfast.core.extensions import Facts
from holdfast.retained.store.values import Slice

One = TypeVar("One")


@frozen
class ReplayForm:
    """The form of the packets that a subscriber asks for under its present options (see :class:`Selection`).

    ``detailed`` asks for the QoS and the expiry of each message. ``within`` has Topic Filters that match every message
    that the subscriber may receive, None if it may receive all, or if they are unknown. ``facts`` are told of each one.
    """

    protocol_version: int
    detailed: bool
    except_client: str | None = None
    max_packet_size: int | None = None
    within: tuple[str, ...] | None = None
    facts: Facts = ()


class IDelivery(Interface):
    """The subscriber's end of a replay. It says how many messages may be delivered now, and takes them."""

    client_id = Attribute("The subscriber's Client Identifier.")
    epoch = Attribute("A value that changes whenever the subscriber's permissions may change.")

    def form() -> ReplayForm:
        """Return the form for the next read."""

    def room() -> int:
        """Return how many messages may be delivered now. At 0, the subscriber later calls :meth:`Replay.wake`."""

    def fitting(messages: Slice) -> int:
        """Return how many messages of a slice may be delivered now, by their bytes. At 0, see :meth:`room`."""

    def most_bytes() -> int:
        """Return how many bytes of messages the next read may have: about as many as may be delivered."""

    def slice_bytes() -> int:
        """Return how many bytes of messages the next slice may have; one longer message is delivered anyway."""

    def is_leaving(after: str, last: str) -> bool:
        """Tell whether a replayed message has yet to leave, of a matching topic above ``after`` and up to ``last``.

        The subscriber wakes the replay when that message has left.
        """

    def awaits_commits() -> bool:
        """Tell whether a message delivered now may leave only after the next commit, as with QoS 2."""

    def yield_to_queue() -> None:
        """Report no room until all messages that wait for the subscriber now have been sent."""

    def deliver(messages: Slice) -> None:
        """Take a slice of at most ``room()`` messages, read in the form that was asked for last."""

    def left_out(count: int) -> None:
        """Take note that messages are longer than the form's ``max_packet_size`` and so are not delivered."""

    def conclude() -> bool:
        """Send what follows the last message. Return False if there is no room for it yet (see :meth:`room`)."""

    def finished() -> None:
        """Take note that all messages have been delivered."""

    def failed(error: BaseException) -> None:
        """Take note that the store could not be read: the replay is over and incomplete."""

    def cancelled() -> None:
        """Take note that an operator ended the replay: it is over and incomplete."""


class IReplayRegistry(Protocol[One]):
    """The list of all replays, as a replay sees it.

    ``delivered`` counts the messages that all replays have delivered, ``throttled`` the replays that wait for a rate.
    """

    delivered: int
    throttled: int

    @property
    def unsent_revision(self) -> int:
        """The highest revision of a change that was not sent live."""

    def others(self, replay: One) -> Iterable[One]:
        """Return the other replays of the same client that are not over."""

    def began(self, replay: One) -> None:
        """Note that a replay is about to deliver its first message."""

    def ended(self, replay: One) -> None:
        """Remove a replay that is over."""

    def next_count(self) -> int:
        """Return the next number of the counter that orders the beginnings and ends of reads."""


# The state of a replay, and its status for operators.


class ReplayState(Enum):
    """The states of a replay. ``replay.py`` has the table of what each waits for. Operators see the names."""

    COMMITTING = auto()  #: waits for the commit of changes accepted before the SUBSCRIBE
    READY = auto()  #: waits for its turn
    READING = auto()  #: waits for the store
    RESTING = auto()  #: waits for room
    THROTTLED = auto()  #: waits for a rate
    OVER = auto()  #: finished, failed or stopped


@frozen
class ReplayStatus:
    """A replay as of now. ``held`` messages are read and not delivered; ``age`` is in seconds."""

    number: int
    client_id: str
    topic_filter: str
    delivered: int
    held: int
    cursor: str  #: the last topic that was delivered or skipped
    state: ReplayState
    age: float
