"""The conditions of a PUBLISH, and how a bad one is explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.extensions import BadRequest, Conditions, publish_requests

DIGEST = "ab" * 32


def test_all_conditions() -> None:
    """Each name has its condition; other User Properties are not looked at."""
    given = [
        ("unit", "C"),
        ("holdfast-if-revision", "42"),
        ("holdfast-if-absent", ""),
        ("holdfast-if-payload-sha256", DIGEST.upper()),
    ]
    assert publish_requests(given).conditions == Conditions(42, True, DIGEST)
    assert publish_requests(given[:1]).conditions is None


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("holdfast-if-revision", "", "a whole number from 0 to 9223372036854775807"),
        ("holdfast-if-revision", "-1", "a whole number"),
        ("holdfast-if-revision", "01", "a whole number"),
        ("holdfast-if-revision", "٣", "a whole number"),
        ("holdfast-if-revision", str(2**63), "a whole number"),
        ("holdfast-if-absent", "1", "an empty value"),
        ("holdfast-if-payload-sha256", DIGEST[1:], "64 hexadecimal digits"),
        ("holdfast-if-payload-sha256", f"{DIGEST}\n", "64 hexadecimal digits"),
    ],
)
def test_bad_values(name: str, value: str, why: str) -> None:
    """A value that is not understood is refused: the text names the property and what is allowed."""
    with pytest.raises(BadRequest, match=f"User Property {name} .*{why}"):
        publish_requests([(name, value)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "holdfast-if-revision", "holdfast-if-absent", "holdfast-if-payload-sha256"]),
            st.text() | st.sampled_from(["", "0", "17", DIGEST]),
        )
    )
)
def test_any_properties_are_understood_or_refused(properties: list[tuple[str, str]]) -> None:
    """Whatever comes, it is conditions, none, or a BadRequest; a name that is given twice is always refused."""
    names = [name for name, _ in properties if name != "a"]
    told = ""
    try:
        found = publish_requests(properties).conditions
    except BadRequest as bad:
        told = str(bad)
    else:
        assert len(names) == len(set(names))
        assert (found is None) is not bool(names)
    assert not told or told.startswith("User Property holdfast-if-")
