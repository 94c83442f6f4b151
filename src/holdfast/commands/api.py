"""What the pipeline uses of the commands: access to the API of a broker, and to its stand-in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holdfast.commands.access import MergeFailed, merge_staged
from holdfast.commands.interfaces import Access, Inaccessible
from holdfast.commands.opening import access_to

if TYPE_CHECKING:
    from holdfast.config import Config

__all__ = [
    "Access",
    "Inaccessible",
    "MergeFailed",
    "access_to",
    "merge_staged",
    "standing_in",
]


def standing_in(config: Config) -> AbstractContextManager[Access]:
    """Open the store in this process, without a broker. Raises StoreUnusable.

    Twisted is imported here, on the first call: Spark's workers do without it.
    """
    from holdfast.commands.stand_in import standing_in as stand_in

    return stand_in(config)
