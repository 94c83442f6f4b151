"""Shapes that people write, in place of those that are found: topic patterns such as ``hq/{floor}/{room}/#``."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from holdfast.core.topics import matches
from holdfast_pipeline.sources.topic_patterns import TopicPattern, topic_pattern


@frozen
class Pattern:
    """A pattern, and the names that its named levels have had, by their places."""

    pattern: TopicPattern
    names: dict[int, set[str]] = field(factory=dict)


class Patterns:
    """Patterns in their order: the first one that matches a topic is its shape."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """Raises :class:`holdfast_pipeline.errors.PipelineError` for a text that is no pattern."""
        self.patterns = [Pattern(topic_pattern(text)) for text in texts]

    def number_of(self, topic: str) -> int | None:
        """Return the number of the first pattern that matches a topic, None if none does."""
        for number, each in enumerate(self.patterns):
            if matches(each.pattern.topic_filter, topic):
                return number
        return None

    def learn(self, topic: str) -> bool:
        """Count the names of a topic that matches, and tell whether one did."""
        number = self.number_of(topic)
        if number is None:
            return False
        names, levels = self.patterns[number].names, topic.split("/")
        for place in self.patterns[number].pattern.levels.values():
            names.setdefault(place, set()).add(levels[place])
        return True
