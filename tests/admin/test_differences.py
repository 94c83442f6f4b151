"""The differences of two payloads are told by path or by line, within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.admin.api import revisions as module
from holdfast.admin.api.revisions import LARGEST_COMPARED, MOST_CHANGES, Difference, differences


def told(before: bytes | None, after: bytes | None, where: str) -> list[dict[str, Any]]:
    return [change.record(where) for change in differences(before, after).changes]


def test_json_is_compared_by_path() -> None:
    """A path is a JSON Pointer. true is not 1."""
    before = {"a": 1, "b/~": [1, {"c": 2}], "same": None, "t": True}
    after = {"a": 2, "b/~": [1], "same": None, "t": 1, "new": "x"}
    assert told(json.dumps(before).encode(), json.dumps(after).encode(), "path") == [
        {"kind": "changed", "path": "/a", "before": 1, "after": 2},
        {"kind": "removed", "path": "/b~1~0/1", "before": {"c": 2}},
        {"kind": "changed", "path": "/t", "before": True, "after": 1},
        {"kind": "added", "path": "/new", "after": "x"},
    ]
    assert told(b"21.5", b"22", "path") == [{"kind": "changed", "path": "", "before": 21.5, "after": 22}]
    assert told(None, b'{"a": null}', "path") == [{"kind": "added", "path": "", "after": {"a": None}}]


def test_text_is_compared_by_line() -> None:
    assert told(b"one\ntwo\nthree", b"one\n2\nthree\nfour", "line") == [
        {"kind": "removed", "line": 2, "before": "two"},
        {"kind": "added", "line": 2, "after": "2"},
        {"kind": "added", "line": 4, "after": "four"},
    ]
    assert told(b"a", None, "line") == [{"kind": "removed", "line": 1, "before": "a"}]


@pytest.mark.parametrize(
    "payload", [b"\xff", b"x" * (LARGEST_COMPARED + 1), b"[" * LARGEST_COMPARED, b'"\\ud800"', b"NaN", b"9" * 5000]
)
def test_odd_payloads_are_compared_without_an_error(payload: bytes) -> None:
    """Half a surrogate pair, NaN or deep nesting is no JSON to show, but text."""
    found = differences(payload, payload)
    assert found.equal
    assert found.content in ("text", "bytes")
    assert json.dumps([change.record("at") for change in differences(b"{}", payload).changes]).encode()


def test_the_number_of_differences_is_bounded() -> None:
    before, after = (json.dumps([value] * 2000).encode() for value in (1, 2))
    found = differences(before, after)
    assert (len(found.changes), found.truncated) == (MOST_CHANGES, True)


def test_many_changed_lines_are_one_block() -> None:
    """Comparing all pairs of them would take too long."""
    before, after = ("\n".join(f"{word} {number}" for number in range(300)).encode() for word in ("a", "b"))
    (change,) = differences(before, after).changes
    assert (change.kind, change.where) == ("changed", 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_json_values_differ_if_and_only_if_a_difference_is_told(before: Any, after: Any) -> None:
    """Applied to the older value, the differences give the newer one."""
    found = differences(json.dumps(before).encode(), json.dumps(after).encode())
    assert found.content == "json"
    assert json.dumps(_applied(before, found.changes), sort_keys=True) == json.dumps(after, sort_keys=True)


def _applied(value: Any, changes: Any) -> Any:
    holder = {"": json.loads(json.dumps(value))}
    removals: list[tuple[Any, Any]] = []
    for change in changes:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in str(change.where).split("/")]
        place: Any = holder
        for step in steps[:-1]:
            place = place[int(step) if isinstance(place, list) else step]
        last: Any = int(steps[-1]) if isinstance(place, list) else steps[-1]
        if change.kind == "removed":
            removals.append((place, last))
        elif isinstance(place, list) and last == len(place):
            place.append(change.after)
        else:
            place[last] = change.after
    for place, last in reversed(removals):
        del place[last]
    return holder[""]


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6), st.booleans())
def test_lines_applied_to_the_older_text_give_the_newer_one(before: list[str], after: list[str], tiny: bool) -> None:
    """Also where only a block is told."""
    most, module._MOST_PAIRS = module._MOST_PAIRS, 3 if tiny else module._MOST_PAIRS
    try:
        changes = list(module._line_changes(before, after))
    finally:
        module._MOST_PAIRS = most
    lines = list(before)
    for change in changes:
        assert isinstance(change, Difference)
        at = int(change.where) - 1
        if change.kind == "removed":
            assert lines.pop(at) == change.before
        elif change.kind == "added":
            lines.insert(at, change.after)
        else:
            old = change.before.split("\n")
            assert lines[at : at + len(old)] == old
            lines[at : at + len(old)] = change.after.split("\n")
    assert lines == after
