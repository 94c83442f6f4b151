"""A part of the broker that takes another configuration in two steps: first what may fail, then what may not."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from holdfast.config import Config


def nothing() -> None:
    """Do nothing."""


@frozen(kw_only=True)
class Change:
    """What one part has prepared.

    ``begin`` opens what can be opened only in the reactor's thread; raises ConfigError. ``commit``, in the same turn,
    puts the new configuration into effect, and never fails. ``abandon`` closes what was opened, if another part has a
    problem.
    """

    begin: Callable[[], None] = nothing
    commit: Callable[[], None] = nothing
    abandon: Callable[[], None] = nothing


#: A part of the broker whose configuration can change: it takes the running configuration and the new one. It builds
#: everything that the new one needs, and changes nothing. It is called in a thread, so that reading files and compiling
#: rules keeps no client waiting. Raises ConfigError with all problems.
Part = Callable[[Config, Config], Change]
