"""The seam between the store and changes that wait to be put into it (:mod:`holdfast.retained.delayed_writes`)."""

from __future__ import annotations

from typing import Protocol

from holdfast.tickets import CommitTicket
from holdfast.topics import EVERY_TOPIC


class IDelayedChanges(Protocol):
    """Changes that wait. They are older than changes that are put now, and newer than those that were put before."""

    def __len__(self) -> int:
        """Return how many topics have a waiting change."""

    def drop(self, topic: str) -> bool:
        """Forget the change of a topic: a newer one is put. Tell whether there was one."""

    def write_topic(self, topic: str) -> None:
        """Put the change of a topic now."""

    def write(self, topic_filter: str = ...) -> CommitTicket | None:
        """Put the changes of a Topic Filter, or all, or more. Returns None if done, else a ticket for the end."""


class NoDelayedChanges:
    """No change waits."""

    def __len__(self) -> int:
        return 0

    def drop(self, topic: str) -> bool:
        """Do nothing."""
        return False

    def write_topic(self, topic: str) -> None:
        """Do nothing."""

    def write(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket | None:
        """Do nothing."""
        return None


NO_DELAYED_CHANGES = NoDelayedChanges()
