"""A caller of the API, and the scopes that say what a caller may do."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class Scope(Enum):
    """What a call needs. :attr:`ADMIN` includes all other scopes; no other scope includes one."""

    OPEN = "open"
    READ = "read"
    PUBLISH = "publish"
    RETAINED_WRITE = "retained:write"
    ADMIN = "admin"


@frozen
class Caller:
    """Who makes a call. ``name`` is shown in the audit log; a local user has the number ``uid``.

    The name is "" if the caller has not said who it is.
    """

    name: str = ""
    uid: int | None = None
    scopes: frozenset[Scope] = frozenset()

    def may(self, scope: Scope) -> bool:
        """Tell whether this caller may make calls that need a scope."""
        return scope is Scope.OPEN or scope in self.scopes or Scope.ADMIN in self.scopes

    def __str__(self) -> str:
        return self.name or "an unknown operator"


#: who has not said who it is, and may make open calls only
ANYONE = Caller()
