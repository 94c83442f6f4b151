"""The topics of a slice, for comparison."""

from __future__ import annotations

from holdfast.retained.store.slices import packets_of
from holdfast.retained.store.values import Slice


def topics_of(messages: Slice, protocol_version: int) -> list[str]:
    """Return the topics of the slice's messages, in order."""
    return [topic for _, _, topic in packets_of(messages, protocol_version)]
