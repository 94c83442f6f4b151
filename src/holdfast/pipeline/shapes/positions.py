"""Positions in a tree of topics: what a level, or several levels that are alike, have below them. Pure.

A position stands for one or more places of the tree, its *instances*. Merging the positions of four floors gives one
position with four instances; a room that is on three of the floors has three instances below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.pipeline.shapes.name_families import family_of

#: the family of all names
ANY = ""
#: The most paths in a signature.
_MOST_PATHS = 64


class Position:
    """The levels below a place.

    ``kinds`` counts the instances that have a message of their own, by the kind of its payload. ``children`` are the
    levels below that have a name. ``variables`` are those with any name of a family, by the family.
    """

    __slots__ = ("_signature", "children", "instances", "kinds", "variables")

    def __init__(self) -> None:
        self.instances = 1
        self.kinds: Counter[str] = Counter()
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
        self.kinds.update(other.kinds)
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
            self._signature = frozenset(path for path, _ in zip(self._paths(), range(_MOST_PATHS), strict=False))
        return self._signature

    def _paths(self) -> Iterator[str]:
        yield from sorted(self.kinds)
        below = [(family_of(name), child) for name, child in self.children.items()]
        below += [(family, variable.position) for family, variable in self.variables.items()]
        for family, child in sorted(below, key=lambda pair: pair[0]):
            for path in sorted(child.signature):
                yield f"{family}/{path}"


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


def alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Tell whether two signatures are alike: at least half of the paths of both are common."""
    return 2 * len(first & second) >= len(first | second)
