"""The revisions that brokers have told: one for each change, and they rise in the order of the changes."""

from __future__ import annotations

from attrs import define


@define
class Revisions:
    """The told revisions, by topic and value."""

    _told: dict[str, dict[int, int]]

    def told(self, topic: str, value: int, revision: int) -> bool:
        """Note a revision, and tell whether it is in order with all others of the topic."""
        known = self._told.setdefault(topic, {})
        if known.setdefault(value, revision) != revision:
            return False
        return all((other < value) == (its < revision) for other, its in known.items() if other != value)

    def of(self, topic: str) -> dict[int, int]:
        """Return the told revisions of a topic, by value."""
        return self._told[topic]
