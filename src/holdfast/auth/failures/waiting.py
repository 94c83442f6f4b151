"""The refusals that wait for their time: few for each address, and few in all."""

from __future__ import annotations

from collections.abc import Callable

#: refusals that may wait for one address, and in all
MOST_FOR_ADDRESS = 16
MOST = 1000


class WaitingRefusals:
    """Refused Clients that wait for their answer, by the groups of their addresses.

    Each is a function that answers now. What comes beyond the bounds does not wait.
    """

    def __init__(self, most_for_address: int = MOST_FOR_ADDRESS, most: int = MOST) -> None:
        self._most_for_address = most_for_address
        self._most = most
        self._waiting: dict[str, set[Callable[[], None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def enter(self, group: str, answer: Callable[[], None]) -> bool:
        """Let a refusal wait; False if too many do."""
        if self._count >= self._most or len(self._waiting.get(group, ())) >= self._most_for_address:
            return False
        self._waiting.setdefault(group, set()).add(answer)
        self._count += 1
        return True

    def leave(self, group: str, answer: Callable[[], None]) -> None:
        """Forget a refusal: it was answered, or its Client is gone."""
        of_group = self._waiting.get(group, set())
        if answer in of_group:
            of_group.remove(answer)
            self._count -= 1
            if not of_group:
                del self._waiting[group]

    def answer_all(self, group: str) -> None:
        """Answer all refusals of a group now."""
        for answer in tuple(self._waiting.get(group, ())):
            answer()
