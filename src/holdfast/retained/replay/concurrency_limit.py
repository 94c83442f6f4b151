"""How many may run at once: the others wait in line."""

from __future__ import annotations

from holdfast.retained.replay.rate_limiter import Waiter


class ConcurrencyLimit:
    """Lets at most so many in at once (None for any number), and the others in their order, as places get free."""

    def __init__(self, places: int | None) -> None:
        self._places = places
        self._inside: set[Waiter] = set()
        self._waiting: dict[Waiter, None] = {}

    def enter(self, waiter: Waiter) -> bool:
        """Tell whether there is a place; if not, the waiter is in the line."""
        if self._places is not None and len(self._inside) >= self._places:
            self._waiting[waiter] = None
            return False
        self._inside.add(waiter)
        return True

    def leave(self, waiter: Waiter) -> None:
        """Give up the place, inside or in the line."""
        self._waiting.pop(waiter, None)
        if waiter in self._inside:
            self._inside.discard(waiter)
            self._let_in()

    def change(self, places: int | None) -> None:
        """Go on with another number of places; who is inside stays."""
        self._places = places
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and (self._places is None or len(self._inside) < self._places):
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            self._inside.add(waiter)
            waiter.proceed()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)
