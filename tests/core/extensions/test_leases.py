"""The User Property that asks for a lease."""

from __future__ import annotations

import pytest

from holdfast.core.extensions import RETAIN_WHILE, BadRequest, LeaseTerm, lease_of


@pytest.mark.parametrize("term", LeaseTerm)
def test_a_lease_is_read(term: LeaseTerm) -> None:
    """Among other User Properties, which ask for no lease."""
    assert lease_of([("a", "session"), (RETAIN_WHILE, term.value)]) is term
    assert lease_of([("a", "session")]) is None


@pytest.mark.parametrize("values", [[""], ["Session"], ["session", "session"], ["session", "connected"]])
def test_a_bad_lease_is_refused(values: list[str]) -> None:
    """The text names the property."""
    with pytest.raises(BadRequest, match=RETAIN_WHILE):
        lease_of([(RETAIN_WHILE, value) for value in values])
