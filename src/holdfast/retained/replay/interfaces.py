"""The interface between a replay and its subscriber."""

from __future__ import annotations

from attrs import frozen
from zope.interface import Attribute, Interface

from holdfast.retained.store.values import Slice


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
