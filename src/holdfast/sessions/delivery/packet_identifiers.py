"""Packet Identifiers of messages that the Server sends."""

from __future__ import annotations

from collections.abc import Container


class PacketIdentifiers:
    """Packet Identifiers 1..65535 in turn, without those in use [MQTT5-2.2.1-3]."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self, used: Container[int]) -> int:
        """Return a free Packet Identifier. One is always free, because the window limits the messages in flight."""
        candidate = self._last
        while True:
            candidate = candidate + 1 if candidate < 65535 else 1
            if candidate not in used:
                self._last = candidate
                return candidate
