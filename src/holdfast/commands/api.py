"""What the pipeline uses of the commands: access to the API of a broker, and its stand-ins without one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holdfast.commands.access import MergeFailed, merge_staged
from holdfast.commands.interfaces import Access, Inaccessible
from holdfast.commands.opening import access_to

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.core.messages import RetainedChange

__all__ = [
    "Access",
    "Inaccessible",
    "MergeFailed",
    "access_to",
    "merge_staged",
    "standing_in",
    "write_past",
]


def standing_in(config: Config) -> AbstractContextManager[Access]:
    """Open the store in this process, without a broker. Raises StoreUnusable.

    Twisted is imported here, on the first call: Spark's workers do without it.
    """
    from holdfast.commands.stand_in import standing_in as stand_in

    return stand_in(config)


def write_past(url: str, changes: Iterable[RetainedChange], history_since: int) -> None:
    """Write changes into a database, each at its own time, without a broker. Raises StoreUnusable.

    Like :func:`standing_in`, it imports Twisted on the first call.
    """
    from holdfast.commands.stand_in import write_past as write

    write(url, changes, history_since)
