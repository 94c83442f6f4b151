"""The shapes of a set of topics, and the shape of each topic. Pure; can be pickled for Spark's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from holdfast_pipeline.shapes.levels import levels_of
from holdfast_pipeline.shapes.name_families import family_of, singular, stem_of
from holdfast_pipeline.shapes.patterns import Pattern, Patterns
from holdfast_pipeline.shapes.positions import ANY, Position, Variable

#: the shape of topics that have none
NO_SHAPE = -1
#: a tree of shapes: the number of the shape that ends here, names, families, and what has any other name
_Node = tuple[int, dict[str, Any], dict[str, Any], Any]


@frozen
class Level:
    """A level of a shape: the ``name`` of all topics, or what the names stand for if it is a variable.

    ``names`` is the number of different names.
    """

    name: str
    names: int = 1
    is_variable: bool = False


@frozen
class Shape:
    """Topics that are alike."""

    number: int
    levels: tuple[Level, ...]

    @property
    def text(self) -> str:
        """The shape as a topic, with ``{name}`` for each variable."""
        return "/".join(f"{{{level.name}}}" if level.is_variable else level.name for level in self.levels)

    @property
    def topic_filter(self) -> str:
        """The Topic Filter that matches its topics, and perhaps others."""
        return "/".join("+" if level.is_variable else level.name for level in self.levels)


class Shapes:
    """Tells the shape of a topic. Those of ``patterns`` come before those that were found."""

    def __init__(self, root: Position, patterns: Patterns) -> None:
        """Take the root of a :class:`Learner`, which has not learned the topics that the patterns match."""
        self._patterns = patterns
        self.shapes = [_of_pattern(number, each) for number, each in enumerate(patterns.patterns)]
        self._root = self._node(root, ())

    @property
    def names_with_numbers(self) -> frozenset[str]:
        """The names of levels that are not those of their families: a topic with one is told apart by its numbers."""
        names = {level.name for shape in self.shapes for level in shape.levels if not level.is_variable}
        return frozenset(name for name in names if family_of(name) != name)

    def number_of(self, topic: str) -> int:
        """Return the number of the topic's shape, :data:`NO_SHAPE` for none."""
        found = self._patterns.number_of(topic)
        if found is None:
            found = _walk(self._root, levels_of(topic), 0)
        return NO_SHAPE if found is None else found

    def text_of(self, topic: str | None) -> str | None:
        """Return the text of the topic's shape, None if it has none, or for no topic: a column may have NULL."""
        number = NO_SHAPE if topic is None else self.number_of(topic)
        return None if number == NO_SHAPE else self.shapes[number].text

    def _node(self, position: Position, levels: tuple[Level, ...]) -> _Node:
        number = NO_SHAPE
        if position.kinds:
            number = len(self.shapes)
            self.shapes.append(Shape(number, levels))
        named = {name: self._node(child, (*levels, Level(name))) for name, child in sorted(position.children.items())}
        families, taken = {}, {level.name for level in levels if level.is_variable}
        for family, variable in sorted(position.variables.items()):
            level = _level(family, variable, levels, taken)
            families[family] = self._node(variable.position, (*levels, level))
            taken.add(level.name)
        return number, named, families, families.pop(ANY, None)


def _of_pattern(number: int, found: Pattern) -> Shape:
    named = {place: name for name, place in found.pattern.levels.items()}
    return Shape(
        number,
        tuple(
            Level(named[place], len(found.names.get(place, ())), True) if place in named else Level(level)
            for place, level in enumerate(found.pattern.topic_filter.split("/"))
        ),
    )


def _walk(node: _Node, levels: Sequence[str], depth: int) -> int | None:
    """Return the number of a shape, None if there is none. A name comes before its family, and that before any name."""
    if depth == len(levels):
        return None if node[0] == NO_SHAPE else node[0]
    _, names, families, others = node
    level = levels[depth]
    named = names.get(level)
    family = families.get(family_of(level)) if families else None
    for below in (named, family, others):
        found = None if below is None else _walk(below, levels, depth + 1)
        if found is not None:
            return found
    return None


def _level(family: str, variable: Variable, above: tuple[Level, ...], taken: set[str]) -> Level:
    """Name a variable after its names, or after the level above it, but not as one that is ``taken``."""
    stems = {stem_of(family_of(name)) for name in variable.names} if family == ANY else {stem_of(family)}
    word = stems.pop() if len(stems) == 1 else ""
    if not word and above and not above[-1].is_variable:
        # The first level is often the name of an installation, and not that of the things below it.
        word = singular(above[-1].name) or (stem_of(above[-1].name) if len(above) > 1 else "")
    word = word or "name"
    number, name = 1, word
    while name in taken:
        number += 1
        name = f"{word}{number}"
    return Level(name, len(variable.names), True)
