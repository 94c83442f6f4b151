"""The layout of one table as plain data: its columns in order, and its key."""

from __future__ import annotations

from enum import Enum, auto


class Kind(Enum):
    """The kind of a column's values."""

    TEXT = auto()
    BLOB = auto()
    SMALL = auto()  #: integers of 16 bits
    INTEGER = auto()  #: integers of 32 bits
    BIG = auto()  #: integers of 64 bits


class Layout:
    """The layout of one table. The primary key is the first ``key_length`` columns."""

    __slots__ = ("columns", "key", "name")

    def __init__(self, name: str, key_length: int, **columns: Kind) -> None:
        self.name = name
        self.columns = columns
        self.key = tuple(columns)[:key_length]

    @property
    def names(self) -> str:
        """The names of all columns in their order, for a statement."""
        return ", ".join(self.columns)
