"""What becomes of an imported message, given what is retained: the same for whoever imports."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Merge(Enum):
    """What an import does with a topic that is known already."""

    NEWER = "newer"  #: the later change prevails, also if that was a clear
    REPLACE = "replace"  #: the imported message prevails
    KEEP = "keep"  #: what is retained prevails


class Verdict(Enum):
    """What became of an imported message."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"  #: exactly this is retained
    KEPT = "kept"  #: something is retained already, and prevails
    CLEARED = "cleared"  #: the topic has been cleared since
    EXPIRED = "expired"  #: nobody would be sent it any more


class Stamped(Protocol):
    """Something stored at a time, under a revision."""

    @property
    def stored_at(self) -> int:
        """When, in milliseconds since the epoch."""

    @property
    def revision(self) -> int:
        """Under which revision, 0 for none."""


def prevails(imported: Stamped, known: Stamped, merge: Merge) -> bool:
    """Tell whether an imported message takes the place of another one that is retained."""
    if merge is Merge.NEWER:
        return (imported.stored_at, imported.revision) > (known.stored_at, known.revision)
    return merge is Merge.REPLACE


def was_cleared_since(stored_at: int, cleared_at: int, merge: Merge) -> bool:
    """Tell whether that the topic has been cleared stands against a message; both in milliseconds since the epoch."""
    return merge is Merge.NEWER and stored_at <= cleared_at
