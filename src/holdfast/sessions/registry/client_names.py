"""The Client Identifiers of all Sessions, in their order.

A list of a hundred thousand clients is shown page by page. Each page begins behind the last Client Identifier of the
page before, wherever that is: a dictionary could be entered at its beginning only.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList


class ClientNames:
    """A sorted set of Client Identifiers. To add or remove one, or to find a place, takes a few microseconds."""

    def __init__(self) -> None:
        self._names = SortedList()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, client_id: str) -> None:
        """Add a Client Identifier that is not there."""
        self._names.add(client_id)

    def remove(self, client_id: str) -> None:
        """Remove a Client Identifier. Raises ValueError if it is not there."""
        self._names.remove(client_id)

    def after(self, client_id: str, most: int) -> list[str]:
        """Return the next Client Identifiers behind this one, at most so many. Those behind "" are the first ones."""
        start = self._names.bisect_right(client_id)
        found: list[str] = list(self._names.islice(start, start + most))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)
