"""The shapes of a tree of topics: found, or written by people. Pure.

How it works. From the deepest levels upwards, the levels below each place are divided into *names* and *variables*. A
name is a kind of thing (``temperature``), a variable one of several things (``lamp-7``). The levels that become one
variable are merged, and the levels below them are divided anew. These rules hold, in this order:

1. A name that occurs at more places than it has different siblings there is a name: ``light`` is in each of 400 rooms
   that have five different levels each. So is a family of names (``lamp-#``), and rule 3 leaves it alone.
2. Names that differ in their numbers only are a variable: two of them if there are levels below, three otherwise.
3. Three or more siblings that have levels below and are alike are a variable; two are alike if at least half of the
   paths below are common to both. Of levels with nothing below that have the same kinds of payloads, more than 16.
4. After merging four or more places, the names that less than a quarter of them have are treated by rule 3, whatever
   rule 1 says.
5. If there are too many shapes, all levels below the places with the most of them are a variable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from attrs import field, frozen

from holdfast.core.topics import matches
from holdfast_pipeline.sources.ranges import TopicPattern, topic_pattern

# The levels of topics, as far as shapes tell them apart. Pure.

#: All levels from the last one on are one.
_DEEPEST = 32


def levels_of(topic: str) -> list[str]:
    """Return the levels of a topic, at most 32: the last one has the rest of the topic."""
    return topic.split("/", _DEEPEST - 1)


# Families of names: names of levels that differ only in their digits, such as ``lamp-1`` and ``lamp-12``. Pure.

_DIGITS = re.compile(r"\d+")
#: Hexadecimal numbers of at least six digits with a decimal digit among them, and UUIDs.
_HEXADECIMAL = re.compile(r"(?<![^\W_])(?:0[xX])?(?=[a-fA-F]*\d)[\da-fA-F]{6,}(?![^\W_])")
_UUID = re.compile(r"[\da-fA-F]{8}-(?:[\da-fA-F]{4}-){3}[\da-fA-F]{12}")
#: The same patterns for ASCII only, in their order, for other engines of regular expressions.
ASCII_NUMBERS = tuple(
    each.pattern.replace(r"[^\W_]", "[A-Za-z0-9]").replace(r"[\d", "[0-9").replace(r"\d", "[0-9]")
    for each in (_UUID, _HEXADECIMAL, _DIGITS)
)
#: What a family has in the place of a number.
NUMBER = "#"
_STEM = re.compile(r"[^\W\d_][^\W\d]*")
#: the shortest word that names a level
_SHORTEST = 3


@lru_cache(maxsize=65_536)
def family_of(name: str) -> str:
    """Return the family: the name with ``#`` in the place of each number. Names without numbers are alone in theirs."""
    return _DIGITS.sub(NUMBER, _HEXADECIMAL.sub(NUMBER, _UUID.sub(NUMBER, name)))


def has_number(family: str) -> bool:
    """Tell whether a family may have several names."""
    return NUMBER in family


def stem_of(family: str) -> str:
    """Return the word that the names of a family have in common, in lower case; "" if there is no word."""
    found = _STEM.search(family)
    word = found[0].strip("_").lower() if found else ""
    return word if len(word) >= _SHORTEST else ""


def singular(word: str) -> str:
    """Return the name of one of several things: ``devices`` gives ``device``, ``batteries`` gives ``battery``."""
    found = _STEM.fullmatch(word)
    if found is None or len(word) <= _SHORTEST or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return ""
    return word[:-3].lower() + "y" if word.endswith("ies") else word[:-1].lower()


# Positions in a tree of topics: what a level, or several levels that are alike, have below them. Pure.
#
# A position stands for one or more places of the tree, its *instances*. Merging the positions of four floors gives
# one position with four instances; a room that is on three of the floors has three instances below it.

#: the family of all names
ANY = ""
#: The most paths in a signature.
_MOST_PATHS = 64
_NO_KINDS: frozenset[str] = frozenset()


class Position:
    """The levels below a place.

    ``kinds`` are those of the payloads of messages that instances have of their own. ``children`` are the levels below
    that have a name. ``variables`` are those with any name of a family, by the family.
    """

    __slots__ = ("_signature", "children", "instances", "kinds", "variables")

    def __init__(self) -> None:
        self.instances = 1
        self.kinds: frozenset[str] = _NO_KINDS
        self.children: dict[str, Position] = {}
        self.variables: dict[str, Variable] = {}
        self._signature: frozenset[str] | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether nothing is below it."""
        return not self.children and not self.variables

    @property
    def below(self) -> list[Position]:
        """The positions of the levels below."""
        return [*self.children.values(), *(variable.position for variable in self.variables.values())]

    @property
    def shapes(self) -> int:
        """The number of shapes at and below it."""
        return bool(self.kinds) + sum(below.shapes for below in self.below)

    def add(self, other: Position) -> None:
        """Merge another position into this one. The other one must not be used any more."""
        self._signature = None
        self.instances += other.instances
        self.kinds |= other.kinds
        for name, child in other.children.items():
            if name in self.children:
                self.children[name].add(child)
            else:
                self.children[name] = child
        for family, variable in other.variables.items():
            if family in self.variables:
                self.variables[family].add(variable)
            else:
                self.variables[family] = variable

    def gather(self, family: str, names: list[str], variables: list[str]) -> Position:
        """Let levels with these names, and of these families, be one variable. Return its position."""
        self._signature = None
        found = self.variables.get(family)
        for name in names:
            one = Variable({name}, self.children.pop(name))
            found = one if found is None else found.add(one)
        for key in variables:
            if key != family:
                one = self.variables.pop(key)
                found = one if found is None else found.add(one)
        assert found is not None
        self.variables[family] = found
        return found.position

    @property
    def signature(self) -> frozenset[str]:
        """The paths below, with families in the place of names, and the kinds of their payloads; some, if many."""
        if self._signature is None:
            below = {(family_of(name), child.signature) for name, child in self.children.items()}
            below |= {(family, variable.position.signature) for family, variable in self.variables.items()}
            self._signature = _signature(self.kinds, frozenset(below))
        return self._signature


class Variable:
    """The levels at one place that have different ``names`` and are alike, and their common ``position``."""

    __slots__ = ("names", "position")

    def __init__(self, names: set[str], position: Position) -> None:
        self.names = names
        self.position = position

    def add(self, other: Variable) -> Variable:
        """Merge another variable into this one, and return this one."""
        self.names |= other.names
        self.position.add(other.position)
        return self


@lru_cache(maxsize=4_096)  # most positions of a tree look like others
def _signature(kinds: frozenset[str], below: frozenset[tuple[str, frozenset[str]]]) -> frozenset[str]:
    """Return the signature of a position with these kinds, and levels below of these families and signatures."""
    return frozenset(islice(_paths(kinds, below), _MOST_PATHS))


def _paths(kinds: frozenset[str], below: frozenset[tuple[str, frozenset[str]]]) -> Iterator[str]:
    yield from sorted(kinds)
    # A place may have many thousands of levels below. Only the first families are looked into.
    for family, alike_ones in groupby(sorted(below, key=itemgetter(0)), itemgetter(0)):
        for paths in sorted(sorted(signature) for _, signature in alike_ones):
            for path in paths:
                yield f"{family}/{path}"


def alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Tell whether two signatures are alike: at least half of the paths of both are common."""
    return first is second or 2 * len(first & second) >= len(first | second)


#: the least number of siblings that become a variable: of one family, or alike; with levels below, or without
_FAMILY, _FAMILY_OF_LEAVES, _ALIKE, _ALIKE_LEAVES = 2, 3, 3, 17
#: so many of one family are a variable even if they are not alike
_CERTAINLY = 4
#: the least number of places at which a name has to occur for rule 1, and of merged places for rule 4
_PLACES = 4
#: the most groups of siblings that are compared: further ones are groups of their own
_MOST_GROUPS = 16


@frozen
class _Group:
    """Siblings that are alike: the signature of the first one, names, and families of variables."""

    signature: frozenset[str]
    names: list[str] = field(factory=list)
    families: list[str] = field(factory=list)


class Learner:
    """Learns from topics, and from the kind of payload that each has."""

    def __init__(self) -> None:
        self._root = Position()
        #: by depth and family: at how many places it occurs, and how many families these places have in all
        self._places: Counter[tuple[int, str]] = Counter()
        self._siblings: Counter[tuple[int, str]] = Counter()
        #: by kind: a set of it, which the positions share
        self._as_set: dict[str, frozenset[str]] = {}

    def add(self, topic: str, kind: str) -> None:
        """Learn a topic. Each topic is added once."""
        position = self._root
        for level in levels_of(topic):
            below = position.children.get(level)
            if below is None:
                below = position.children[level] = Position()
            position = below
        position.kinds |= self._as_set.setdefault(kind, frozenset((kind,)))

    def learn(self, most: int = 1000) -> Position:
        """Return the root of at most so many shapes (or of as many as there are depths). Call it once."""
        self._count(self._root, 0)
        self._divide_all(self._root, 0)
        width = most
        while self._root.shapes > most and width > 1:
            width //= 2
            self._narrow(self._root, 0, width)
        return self._root

    def _narrow(self, position: Position, depth: int, width: int) -> None:
        """Rule 5: leave at most so many different levels below each place."""
        if len(position.below) > width:
            self._gather(position, depth, ANY, list(position.children), list(position.variables))
        for below in position.below:
            self._narrow(below, depth + 1, width)

    def _count(self, position: Position, depth: int) -> None:
        """Count the families at each depth."""
        families = {family_of(name) for name in position.children}
        for family in families:
            self._places[depth, family] += 1
            self._siblings[depth, family] += len(families)
        for child in position.children.values():
            self._count(child, depth + 1)

    def _divide_all(self, position: Position, depth: int) -> None:
        for child in position.children.values():
            self._divide_all(child, depth + 1)
        self._divide(position, depth)

    def _divide(self, position: Position, depth: int) -> None:
        """Divide the levels below a position whose children are divided."""
        if len(position.children) + len(position.variables) < _FAMILY:
            return
        self._gather_families(position, depth)
        self._gather_alike(position, depth)

    def _gather_families(self, position: Position, depth: int) -> None:
        """Rule 2."""
        families: dict[str, list[str]] = {}
        for name in sorted(position.children):
            family = family_of(name)
            if has_number(family):
                families.setdefault(family, []).append(name)
        for family, names in families.items():
            if family in position.variables:
                self._gather(position, depth, family, names, [])
                continue
            leaves = all(position.children[name].is_leaf for name in names)
            first = position.children[names[0]].signature
            are_alike = all(alike(first, position.children[name].signature) for name in names)
            if len(names) >= (_CERTAINLY if not are_alike else _FAMILY_OF_LEAVES if leaves else _FAMILY):
                self._gather(position, depth, family, names, [])

    def _gather_alike(self, position: Position, depth: int) -> None:
        """Rules 3 and 4."""
        rare = position.instances >= _PLACES
        groups: list[_Group] = []
        below = [(name, False, child) for name, child in position.children.items()]
        below += [(family, True, found.position) for family, found in position.variables.items() if family != ANY]
        known = position.variables.get(ANY)
        if known is not None:
            groups.append(_Group(known.position.signature, [], [ANY]))
        for key, is_variable, child in sorted(below, key=lambda each: (-each[2].instances, each[0])):
            is_rare = rare and 4 * child.instances < position.instances
            if not is_rare and self._is_name(depth, key if is_variable else family_of(key)):
                continue
            group = next((one for one in groups if alike(one.signature, child.signature)), None)
            if group is None:
                if len(groups) == _MOST_GROUPS:
                    continue
                group = _Group(child.signature)
                groups.append(group)
            (group.families if is_variable else group.names).append(key)
        gathered = _Group(frozenset())
        for group in groups:
            if ANY in group.families or self._is_variable(position, group):
                gathered.names.extend(group.names)
                gathered.families.extend(group.families)
        if gathered.names or len(gathered.families) > 1:
            self._gather(position, depth, ANY, gathered.names, gathered.families)

    def _is_variable(self, position: Position, group: _Group) -> bool:
        """Tell whether a group is large enough for rule 3."""
        variables = [position.variables[family] for family in group.families]
        count = len(group.names) + sum(len(variable.names) for variable in variables)
        leaves = all(position.children[name].is_leaf for name in group.names) and all(
            variable.position.is_leaf for variable in variables
        )
        return len(group.names) + len(variables) > 1 and count >= (_ALIKE_LEAVES if leaves else _ALIKE)

    def _gather(self, position: Position, depth: int, family: str, names: list[str], families: Iterable[str]) -> None:
        merged = position.gather(family, names, list(families))
        self._divide_merged(merged, depth + 1)

    def _divide_merged(self, position: Position, depth: int) -> None:
        """Divide anew what is below a position that was merged, from the deepest level upwards."""
        for below in position.below:
            self._divide_merged(below, depth + 1)
        self._divide(position, depth)

    def _is_name(self, depth: int, family: str) -> bool:
        """Rule 1."""
        places = self._places[depth, family]
        return places >= _PLACES and places * places > self._siblings[depth, family]


# Shapes that people write, in place of those that are found: topic patterns such as ``hq/{floor}/{room}/#``.


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


# The shapes of a set of topics, and the shape of each topic. Pure; can be pickled for Spark's workers.

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


# The figures of shapes, as plain values.


@frozen
class ShapeTotals:
    """The retained messages of one shape.

    ``names`` has the number of names of each variable; if there are very many, it is ``about`` this number. ``kind`` is
    the most frequent kind of payload, ``unlike`` the number of messages with another kind, and ``schema`` Spark's type
    of all JSON values of this kind, None for other payloads. ``newest`` and ``oldest`` are times of storage in
    milliseconds since the epoch. ``publishers`` is approximate. ``changes_a_day`` is None without a history, and for
    topics that a policy records for another time or not at all. ``example`` is the first topic.
    """

    shape: str
    topic_filter: str
    names: tuple[int, ...]
    messages: int
    bytes: int
    kind: str
    unlike: int
    schema: str | None
    newest: int
    oldest: int
    expiring: int
    publishers: int
    changes_a_day: float | None
    example: str
    about: bool = False


@frozen
class ShapesFound:
    """The shapes at ``taken_at`` (milliseconds since the epoch), those with most messages first.

    ``unshaped`` is the number of messages without a shape: only if shapes were learned from a part of the topics.
    """

    taken_at: int
    messages: int
    bytes: int
    unshaped: int
    learned: int
    shapes: tuple[ShapeTotals, ...]
