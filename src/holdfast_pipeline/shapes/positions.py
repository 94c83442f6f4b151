"""Positions in a tree of topics: what a level, or several levels that are alike, have below them. Pure.

A position stands for one or more places of the tree, its *instances*. Merging the positions of four floors gives one
position with four instances; a room that is on three of the floors has three instances below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter

from holdfast_pipeline.shapes.name_families import family_of

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
