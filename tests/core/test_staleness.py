"""When a retained message is stale."""

from __future__ import annotations

import pytest

from holdfast.core.messages import STALE_AFTER, stale_after


@pytest.mark.parametrize(("usual", "seconds"), [(None, STALE_AFTER), (0, 3600), (600, 3600), (900, 5400.0)])
def test_a_message_is_stale_after_six_usual_times(usual: float | None, seconds: float) -> None:
    """After an hour at least; after 30 days where nothing tells what is usual."""
    assert stale_after(usual) == seconds
