"""Finding the shapes of a tree of topics. Pure, and the same for every order of the topics.

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

from collections import Counter
from collections.abc import Iterable

from attrs import field, frozen

from holdfast_pipeline.shapes.levels import levels_of
from holdfast_pipeline.shapes.name_families import family_of, has_number
from holdfast_pipeline.shapes.positions import ANY, Position, alike

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
