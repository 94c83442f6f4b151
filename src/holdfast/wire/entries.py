"""The Topic Filters of a SUBSCRIBE or UNSUBSCRIBE, decoded when they are needed.

One packet may have 250,000 Topic Filters, and decoding them takes most of a second. So a long packet is decoded filter
by filter, while its reader iterates over it. The reader decides how many it takes in one turn of the reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from holdfast.wire.datatypes import Cursor

T = TypeVar("T")

#: the most bytes of Topic Filters that are decoded with their packet: at most a few hundred filters
LONG = 1024


class LongEntries(Generic[T]):
    """The entries in the rest of a packet. Each iteration decodes them anew.

    The iteration raises :class:`MalformedPacket` and :class:`ProtocolError`, at the entry that is wrong.
    """

    __slots__ = ("_data", "_end", "_read", "_reception", "_start")

    def __init__(self, cursor: Cursor, read: Callable[[Cursor], T]) -> None:
        self._data = cursor.data
        self._start = cursor.position
        self._end = cursor.end
        self._read = read
        self._reception = cursor.reception
        cursor.position = cursor.end

    def __iter__(self) -> Iterator[T]:
        cursor = Cursor(self._data, self._start, self._end, self._reception)
        while cursor.remaining():
            yield self._read(cursor)


def entries(cursor: Cursor, read: Callable[[Cursor], T]) -> Iterable[T]:
    """Return the entries in the rest of a packet: decoded already if they are few."""
    if cursor.remaining() > LONG:
        return LongEntries(cursor, read)
    found = []
    while cursor.remaining():
        found.append(read(cursor))
    return tuple(found)
