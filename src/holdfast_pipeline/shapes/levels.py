"""The levels of topics, as far as shapes tell them apart. Pure."""

from __future__ import annotations

#: All levels from the last one on are one.
_DEEPEST = 32


def levels_of(topic: str) -> list[str]:
    """Return the levels of a topic, at most 32: the last one has the rest of the topic."""
    return topic.split("/", _DEEPEST - 1)
