"""The replays of one Client, as its Session sees them."""

from __future__ import annotations

from typing import Protocol


class IReplays(Protocol):
    """The replays of a connected Client."""

    def wake(self) -> None:
        """Let the replays look for room."""

    def stop(self, topic_filter: str) -> None:
        """Stop the replay of a subscription that is removed, if there is one."""


class _NoReplays:
    """No replays: the Client is away."""

    def wake(self) -> None:
        """Wake no replay."""

    def stop(self, topic_filter: str) -> None:
        """Stop no replay."""


NO_REPLAYS = _NoReplays()
