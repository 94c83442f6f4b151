"""Tables of variants: the key ``type`` chooses the section, and every mistake is told with its key."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import field, frozen

from holdfast.config.options import Flag, Section, Text, option, variants
from holdfast.config.reader import KeyProblem, Reader


@frozen
class Cat(Section):
    """A cat."""

    name: str = option(Text(allowed="a name"), "", help="", effect="", example="Tom")


@frozen
class Dog(Section):
    """A dog."""

    barks: bool = option(Flag(), True, help="", effect="", example=False)


@frozen
class Pets(Section):
    """A table with a key of its own, and variants."""

    allowed: bool = option(Flag(), True, help="", effect="", example=False)
    each: Mapping[str, Section] = field(factory=dict, metadata=variants({"cat": Cat, "dog": Dog}, "Pets."))


def read(values: Mapping[str, object]) -> tuple[Pets, list[KeyProblem]]:
    reader = Reader(Pets)
    return reader.section(Pets, values, ()), reader.problems


def test_the_type_chooses_the_section() -> None:
    pets, problems = read(
        {"allowed": False, "tom": {"type": "cat", "name": "Tom"}, "rex": {"type": "dog"}, "each": {"type": "dog"}}
    )
    assert not problems
    assert pets == Pets(False, {"tom": Cat("Tom"), "rex": Dog(), "each": Dog()})


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ({"tom": {"name": "Tom"}}, ("tom",), 'has no type; allowed: type = "cat" or "dog"'),
        ({"tom": {"type": "cow"}}, ("tom", "type"), 'found "cow"; allowed: "cat" or "dog"'),
        ({"tom": {"type": ["cat"]}}, ("tom", "type"), 'found ["cat"]; allowed: "cat" or "dog"'),
        ({"tom": {"type": "cat", "nam": ""}}, ("tom", "nam"), "unknown key; did you mean tom.name?"),
        ({"tom": {"type": "cat", "barks": True}}, ("tom", "barks"), "unknown key; did you mean NAME.barks?"),
        ({"a name": {"type": "cat"}}, ("a name",), "not a name; allowed: names of 1 to 64 letters, digits, - and _"),
        ({"allwed": True}, ("allwed",), "unknown key; did you mean allowed?"),
        ({"allowed": {"type": "cat"}}, ("allowed",), "found a table; allowed: true or false"),
    ],
)
def test_a_mistake_is_told_with_its_key(values: Mapping[str, object], path: tuple[str, ...], message: str) -> None:
    _, [problem] = read(values)
    assert (problem.path, problem.message) == (path, message)
