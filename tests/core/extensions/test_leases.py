"""The User Property that asks for a lease."""

from __future__ import annotations

import pytest

from holdfast.core.extensions import RETAIN_WHILE, BadRequest, LeaseTerm, publish_requests


@pytest.mark.parametrize("term", LeaseTerm)
def test_a_lease_is_read(term: LeaseTerm) -> None:
    """Among other User Properties, which ask for no lease."""
    assert publish_requests([("a", "session"), (RETAIN_WHILE, term.value)]).lease is term
    assert publish_requests([("a", "session")]).lease is None


@pytest.mark.parametrize("values", [[""], ["Session"], ["session", "session"], ["session", "connected"]])
def test_a_bad_lease_is_refused(values: list[str]) -> None:
    """The text names the property."""
    with pytest.raises(BadRequest, match=RETAIN_WHILE):
        publish_requests([(RETAIN_WHILE, value) for value in values])
