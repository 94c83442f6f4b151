"""The interface of scans."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from zope.interface import Interface

from holdfast.retained.store.scans.values import BelowTally, FoundPart, RankedPart, Search, Sorting, Stop, TallyPart
from holdfast.retained.store.values import ListedMessage


class IRetainedScans(Interface):
    """Reads committed messages for operators. Each call looks at ``rows`` rows at most, tombstones among them.

    ``after`` is the topic of the part before, "" for the beginning. A Deferred fails with
    :class:`holdfast.tickets.StorageFailure` if the database cannot be read. It can be cancelled.
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
