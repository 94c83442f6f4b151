"""The interfaces of what follows changes, and of what reads earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Interface

from holdfast.retained.changes.change import StoredChange
from holdfast.retained.changes.token import Place


@frozen
class Taken:
    """Changes in their order. All changes up to ``place`` were taken; ``more`` tells that others are here already.

    ``reset`` says why changes are missing before these: who keeps a copy of the messages has to list them again.
    """

    changes: Sequence[StoredChange]
    place: Place
    more: bool = False
    reset: str | None = None


class IFollower(Interface):
    """Follows the changes of the topics that match a Topic Filter."""

    def take(most_bytes: int) -> Deferred[Taken]:
        """Return the next changes, none if there are none now. Do not call it again before it has fired.

        It may fail with StorageFailure.
        """

    def close() -> None:
        """Follow no longer."""


class IChangesSince(Interface):
    """Tells the changes of retained messages since a token."""

    def token() -> Deferred[str | None]:
        """Return a token for now: a list that begins after this has everything up to it. None: there is none now."""

    def follow(topic_filter: str, token: str | None, news: Callable[[], None]) -> Deferred[IFollower]:
        """Follow changes after a token (None: from now on). ``news`` is called when there are new ones, perhaps often.

        If the token is none, of another store, or too old, the follower begins with a reset.
        """
