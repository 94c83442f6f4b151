"""What a changed configuration protects no longer: the operator is warned, since a table may be lost by mistake."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.config import Config


def lost_protection(running: Config, config: Config) -> Iterator[str]:
    """Yield a sentence for each protection that the running configuration has, and the new one does not have."""
    if running.authentication.is_configured and not config.authentication.is_configured:
        yield "no authentication is configured any more: clients do not prove who they are, and all of them are guests"
    if running.authorization.is_configured and not config.authorization.is_configured:
        beyond = ", except that only administrators may read $SYS/#" if config.authentication.is_configured else ""
        yield f"no rules are configured any more: all clients may publish to and subscribe to all topics{beyond}"
