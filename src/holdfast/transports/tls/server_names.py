"""Choosing a certificate by the host that a client names (SNI), as RFC 9525 compares names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ServerNames(Generic[T]):
    """Finds the value for a host name. ``named`` has values with their names, the default one first.

    ``*.example.org`` stands for names with one label in its place. A whole name prevails over it, and an earlier value
    over a later one with the same name.
    """

    def __init__(self, named: Sequence[tuple[T, Iterable[str]]]) -> None:
        self.default = named[0][0]
        self._exact: dict[str, T] = {}
        self._parents: dict[str, T] = {}
        for value, names in named:
            for name in names:
                label, _, parent = name.partition(".")
                if label == "*" and parent:
                    self._parents.setdefault(parent, value)
                else:
                    self._exact.setdefault(name, value)

    def find(self, name: bytes | None) -> T:
        """Return the value for this host, or the default one."""
        if name is None or not name.isascii():
            return self.default
        text = name.decode("ascii").lower().rstrip(".")
        if text in self._exact:
            return self._exact[text]
        label, _, parent = text.partition(".")
        return self._parents.get(parent, self.default) if label and parent else self.default
