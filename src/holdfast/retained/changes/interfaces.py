"""The interfaces of followers of changes, and of the readers of earlier changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Interface

from holdfast.retained.changes.change import StoredChange
from holdfast.retained.changes.token import Place


@frozen
class Taken:
    """Changes in their order. All changes up to ``place`` were taken; ``more`` means that other changes follow at once.

    ``reset`` is the reason if changes are missing before these: the keeper of a copy must list the messages again.
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
    """Finds the changes of retained messages since a token."""

    def token() -> Deferred[str | None]:
        """Return a token for now, None if none is available: a list that begins later has all changes up to it."""

    def follow(topic_filter: str, token: str | None, news: Callable[[], None]) -> Deferred[IFollower]:
        """Follow changes after a token (None: from now on). ``news`` is called for new changes, perhaps often.

        If the token is none, of another store, or too old, the follower begins with a reset.
        """
