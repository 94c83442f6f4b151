"""The line of every key, in every TOML syntax for keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.toml import locate

DOCUMENT = '''\
# a comment = 1
top = 1

[table]          # line 4
plain = 1
dotted.inner.key = 2
"quoted key" = 3
'literal key' = 4
"tab\\tkey\\u00e9" = 5
spaced . out = 6
1234 = 7
inline = { a = 1, b.c = 2, "d" = { e = 3 } }
array = [
    1,  # ] not the end
    { x = 1,   y = 2 },
    [ { z = 3 } ],
    "]",
    2, ]
basic = "a \\" ] # b"
literal = 'a \\'
multi = """
[not.a.table]
key = "no"
\\""" still inside
"""
quotes = """a"""""
multi_literal = \'\'\'
x = 1
it''s inside \'\'\'
four = \'\'\'\'quoted\'\'\'\'
date = 1979-05-27 07:32:00 # a space inside
real = 1e5
after = 1

[[servers]]
name = "a"
[servers.place]
rack = 1
[[servers.disks]]
size = 1
[[servers]]
name = "b"
[[servers.disks]]
size = 2
[[servers.disks]]
size = 3

[implied.below]
a = 1
[implied]
b = 1
["quoted.table".'x y']
last = 1'''

LINES: list[tuple[Sequence[str | int], int]] = [
    (("top",), 2),
    (("table",), 4),
    (("table", "plain"), 5),
    (("table", "dotted"), 6),
    (("table", "dotted", "inner", "key"), 6),
    (("table", "quoted key"), 7),
    (("table", "literal key"), 8),
    (("table", "tab\tkey\u00e9"), 9),
    (("table", "spaced", "out"), 10),
    (("table", "1234"), 11),
    (("table", "inline"), 12),
    (("table", "inline", "b", "c"), 12),
    (("table", "inline", "d", "e"), 12),
    (("table", "array"), 13),
    (("table", "array", 0), 14),
    (("table", "array", 1, "y"), 15),
    (("table", "array", 2, 0, "z"), 16),
    (("table", "array", 4), 18),
    (("table", "basic"), 19),
    (("table", "literal"), 20),
    (("table", "multi"), 21),
    (("table", "quotes"), 26),
    (("table", "multi_literal"), 27),
    (("table", "four"), 30),
    (("table", "date"), 31),
    (("table", "real"), 32),
    (("table", "after"), 33),
    (("servers",), 35),
    (("servers", 0, "name"), 36),
    (("servers", 0, "place"), 37),
    (("servers", 0, "place", "rack"), 38),
    (("servers", 0, "disks", 0, "size"), 40),
    (("servers", 1), 41),
    (("servers", 1, "name"), 42),
    (("servers", 1, "disks", 0, "size"), 44),
    (("servers", 1, "disks", 1), 45),
    (("servers", 1, "disks", 1, "size"), 46),
    (("implied", "below"), 48),
    (("implied", "below", "a"), 49),
    (("implied",), 50),
    (("implied", "b"), 51),
    (("quoted.table", "x y"), 52),
    (("quoted.table", "x y", "last"), 53),
]


def test_the_document_of_this_test_is_toml() -> None:
    assert tomllib.loads(DOCUMENT)["table"]["after"] == 1


@pytest.mark.parametrize(("path", "line"), LINES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_each_key_has_its_line(path: Sequence[str | int], line: int, line_end: str) -> None:
    assert locate(DOCUMENT.replace("\n", line_end)).at(path) == line


@pytest.mark.parametrize(
    ("path", "line"),
    [(("table", "missing"), 4), (("table", "inline", "missing", "more"), 12), (("missing",), 1), ((), 1)],
)
def test_a_key_that_is_not_in_the_file_has_the_line_of_its_nearest_parent(path: Sequence[str], line: int) -> None:
    assert locate(DOCUMENT).at(path) == line


def test_keys_of_a_table_in_a_plain_array_do_not_belong_to_the_last_table() -> None:
    places = locate("[[a]]\nx = 1\n[[a]]\ny = 2\n")
    assert places.at(("a", 0, "x")) == 2
    assert places.at(("a", 1, "x")) == 3  # not written there: the second table itself


@pytest.mark.parametrize(
    "text", ["a = 1\nb ! 2\nc = 3", "a = 1\n[b\nc = 3", "a = 1\nb = ['1' 2]\nc = 3", "a = 1\nb = "]
)
def test_an_unknown_syntax_ends_the_scan_and_keeps_the_earlier_keys(text: str) -> None:
    places = locate(text)
    assert places.at(("a",)) == 1
    assert places.at(("c",)) == 1  # the document itself


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.booleans().map(lambda flag: str(flag).lower()),
    st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF, exclude_categories=["Cc"])).map(json.dumps),
    st.sampled_from(
        ['"""\n]\n"""', "'''\n#\n'''", "1979-05-27T07:32:00Z", "0x1F", "[ ]", "[\n1,\n[ 2, # x\n], ]", "{ }"]
    ),
)
names = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF, exclude_categories=["Cc"]), max_size=6)


@given(st.lists(st.tuples(st.lists(names, min_size=1, max_size=3), scalars, st.integers(0, 2)), max_size=12))
def test_keys_of_any_document_have_their_lines(
    statements: list[tuple[list[str], str, int]],
) -> None:
    """A number makes each key unique, so any names make a valid document."""
    text = ""
    expected: dict[tuple[str, ...], int] = {}
    for number, (parts, value, form) in enumerate(statements):
        path = (f"{number}", *parts)
        key = ".".join(json.dumps(part, ensure_ascii=form == 0) for part in path)
        line = text.count("\n") + 1
        if form == 2:
            text += f"[{key}]\n"
            expected[path] = line
            path, key, line = (*path, "value"), "value", line + 1
            text += f"{key}={value}\n"
            expected[path] = line
            text += "[[then]]\n"
        else:
            path = path if "[[then]]" not in text else ("then", str(text.count("[[then]]") - 1), *path)
            text += f"{key} = {value} # comment\n"
            expected[path] = line
    tomllib.loads(text)
    places = locate(text)
    for path, line in expected.items():
        steps: list[str | int] = list(path)
        if steps[0] == "then":
            steps[1] = int(path[1])
        assert places.at(steps) == line
