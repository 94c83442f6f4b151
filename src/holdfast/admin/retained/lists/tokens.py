"""The tokens of lists: with a token, a caller follows the changes after its list."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred, succeed

from holdfast.retained.changes.interfaces import IChangesSince


class Tokens:
    """Gives lists their tokens. Without ``changes`` there are none."""

    def __init__(self, changes: IChangesSince | None) -> None:
        self._changes = changes

    def of_first_page(self, arguments: Mapping[str, str]) -> Deferred[str | None]:
        """Return the token of a list that is read after this.

        Later pages have none: what has changed since the first page may be missing in them. Nor has a list of the past.
        """
        later = "cursor" in arguments or "at" in arguments or arguments.get("page", "1") != "1"
        if self._changes is None or later:
            return succeed(None)
        token: Deferred[str | None] = self._changes.token()
        return token
