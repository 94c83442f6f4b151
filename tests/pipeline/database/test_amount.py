"""A database is small if its messages and the entries of its history are few, whatever has been deleted."""

from __future__ import annotations

import pytest

from holdfast_pipeline import database as amount
from holdfast_pipeline.database import Source
from tests.pipeline.stores import Filled, message


@pytest.mark.parametrize(("most", "expected"), [(0, False), (3, False), (4, True)])
def test_messages_and_entries_count_together(
    recorded: Filled, monkeypatch: pytest.MonkeyPatch, most: int, expected: bool
) -> None:
    """Two messages were put, and each has an entry."""
    recorded.put(message("a"))
    recorded.put(message("b"))
    monkeypatch.setattr(amount, "MOST_SMALL", most)
    assert amount.is_small(Source(recorded.url)) is expected
