"""Remembers for a while which requests were answered with an acceptance.

The key is a digest of the whole body of the request, with a key of this process: two Clients that differ in any field
never share an answer, and no password is kept. The number of entries is bounded; the one used longest ago goes first.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

from holdfast.auth.interfaces import Accepted


class RememberedAnswers:
    """Acceptances by the body of their request. ``seconds`` returns the time."""

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._entries: OrderedDict[bytes, tuple[float, Accepted]] = OrderedDict()

    def find(self, body: bytes) -> Accepted | None:
        """Return the acceptance of this very request, None if there is none or its time is over."""
        digest = self._digest(body)
        found = self._entries.get(digest)
        if found is None:
            return None
        until, accepted = found
        if self._seconds() >= until:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return accepted

    def remember(self, body: bytes, accepted: Accepted, seconds: float) -> None:
        """Remember an acceptance for some seconds; not at all for 0 seconds."""
        if seconds <= 0:
            return
        self._entries[self._digest(body)] = self._seconds() + seconds, accepted
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all: users may have been removed."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _digest(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")
