"""A caller of the API, and the scopes of its permissions."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class Scope(Enum):
    """The permission that a call needs. :attr:`ADMIN` includes all other scopes; no other scope includes one."""

    OPEN = "open"
    READ = "read"
    PUBLISH = "publish"
    RETAINED_WRITE = "retained:write"
    ADMIN = "admin"


class Via(Enum):
    """The proof of a caller's identity."""

    NOTHING = "nothing"
    CONTROL = "the control socket"
    KEY = "an API key"
    SESSION = "a session of the dashboard"


@frozen
class Caller:
    """The caller of a call. ``name`` is shown in the audit log; a local user has the number ``uid``.

    ``on_loopback`` tells whether the call comes from this machine. That alone gives few rights: every user and every
    browser of the machine can make such a call.
    """

    name: str = ""
    uid: int | None = None
    scopes: frozenset[Scope] = frozenset()
    via: Via = Via.NOTHING
    on_loopback: bool = False

    def may(self, scope: Scope) -> bool:
        """Tell whether this caller may make calls that need a scope."""
        return scope is Scope.OPEN or scope in self.scopes or Scope.ADMIN in self.scopes

    def __str__(self) -> str:
        return self.name or "an unknown operator"


#: who has proven nothing, and may make open calls only
ANYONE = Caller()
