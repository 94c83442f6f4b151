"""The seam to whoever reports denied actions: it is told of each one, and limits its own lines."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.auth.interfaces import Principal

#: Takes the Principal, the action and the Topic Name or Topic Filter. The actions are those of the rules: ``publish``,
#: ``retain``, ``clear`` and ``subscribe``. Withheld deliveries are only counted.
Denied = Callable[[Principal, str, str], None]


def tell_nobody(_principal: Principal, _action: str, _topic: str) -> None:
    """Report no denied action."""


def action_of(retain: bool, clears: bool) -> str:
    """Return the action of a PUBLISH or Will Message."""
    if clears:
        return "clear"
    return "retain" if retain else "publish"
