"""Finds out who makes a request over the listener of the API."""

from __future__ import annotations

from typing import Any

from holdfast.admin.callers.caller import Caller
from holdfast.admin.http.guards import Guards, is_on_loopback
from holdfast.admin.http.head import Head


class Identities:
    """Tells the caller of each request."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards

    def identify(self, _channel: Any, head: Head) -> Caller:
        """Return who makes a request. Raises RefusedCall if it may not be made at all."""
        self._guards.check(head)
        return Caller(on_loopback=is_on_loopback(head))
