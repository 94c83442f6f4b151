"""The cost of replays under settings of flow control."""

from __future__ import annotations

import pytest

from holdfast.core.units import Rate
from holdfast.retained.limits import FlowSettings
from holdfast_pipeline.filters import least_seconds, reads, slices


@pytest.mark.parametrize(
    ("messages", "size", "least_reads", "least_slices"),
    [(0, 0, 0, 0), (1, 0, 1, 1), (1000, 1, 1, 10), (1001, 1, 2, 11), (10, 5 << 20, 5, 1)],
)
def test_batches_end_at_a_number_of_messages_and_at_a_number_of_bytes(
    messages: int, size: int, least_reads: int, least_slices: int
) -> None:
    found = FlowSettings(batch_read_number=1000, batch_deliver_number=100, max_batch_bytes=1 << 20)
    assert (reads(found, messages, size), slices(found, messages)) == (least_reads, least_slices)
    assert slices(FlowSettings(batch_read_number=50, batch_deliver_number=0), 101) == 3


def test_the_slower_rate_gives_the_least_seconds_of_a_replay() -> None:
    """The amount of a rate comes at once, the rest evenly. Without a rate there is no least time."""
    assert least_seconds(FlowSettings(), 10**6) is None
    assert least_seconds(FlowSettings(delivery_rate=Rate(1000, 1.0)), 5000) == 4.0
    assert least_seconds(FlowSettings(delivery_rate=Rate(1000, 1.0)), 999) == 0.0
    assert least_seconds(FlowSettings(delivery_rate=Rate(1000, 1.0), client_rate=Rate(10, 0.1)), 5000) == pytest.approx(
        49.9
    )
