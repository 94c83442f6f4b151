"""Links that log an operator in at the dashboard: each has a token that counts once, and for a quarter of an hour."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.admin.callers.tokens import digest_of, new_token

#: seconds for which a link can be used
LIFETIME = 900.0
#: the most links that can be used at one time
MOST = 100


class Links:
    """The tokens of links that are not used yet. ``seconds`` is any clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._ends: dict[bytes, float] = {}

    def new(self) -> str:
        """Return the token of a new link. The oldest one ends if there are too many."""
        self._forget()
        while len(self._ends) >= MOST:
            del self._ends[next(iter(self._ends))]
        token = new_token()
        self._ends[digest_of(token)] = self._seconds() + LIFETIME
        return token

    def use(self, token: str) -> bool:
        """Tell whether a token counts. It does not count again."""
        self._forget()
        return self._ends.pop(digest_of(token), None) is not None

    def _forget(self) -> None:
        now = self._seconds()
        for digest in [digest for digest, end in self._ends.items() if end <= now]:
            del self._ends[digest]
