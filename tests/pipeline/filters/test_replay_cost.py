"""What replays take by the settings of flow control."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.filters.replay_cost import deliveries, expected, flow, reads
from holdfast.rates import Rate
from holdfast.retained.replay.flow_settings import FlowSettings


@pytest.mark.parametrize(
    ("messages", "size", "expected_reads", "slices"),
    [(0, 0, 0, 0), (1, 0, 1, 1), (1000, 1, 1, 10), (1001, 1, 2, 11), (10, 5 << 20, 5, 1)],
)
def test_batches_end_at_a_number_of_messages_and_at_a_number_of_bytes(
    messages: int, size: int, expected_reads: int, slices: int
) -> None:
    found = FlowSettings(batch_read_number=1000, batch_deliver_number=100, max_batch_bytes=1 << 20)
    assert (reads(found, messages, size), deliveries(found, messages)) == (expected_reads, slices)
    assert deliveries(FlowSettings(batch_read_number=50, batch_deliver_number=0), 101) == 3


def test_the_slower_rate_says_how_long_a_replay_lasts_at_least() -> None:
    """A rate's amount comes at once, the rest evenly; without any rate the client sets the pace."""
    assert expected(FlowSettings(), 10**6) is None
    assert expected(FlowSettings(delivery_rate=Rate(1000, 1.0)), 5000) == 4.0
    assert expected(FlowSettings(delivery_rate=Rate(1000, 1.0)), 999) == 0.0
    assert expected(FlowSettings(delivery_rate=Rate(1000, 1.0), client_rate=Rate(10, 0.1)), 5000) == pytest.approx(49.9)


def test_settings_are_those_of_the_file_unless_others_are_given(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[retainer]\ndelivery_rate = "500/s"\n[retainer.flow_control]\nbatch_read_number = 300\n')
    assert flow(None) == FlowSettings()
    assert flow(str(file)) == FlowSettings(batch_read_number=300, delivery_rate=Rate(500, 1.0))
    assert flow(str(file), 200, 50, "infinity") == FlowSettings(batch_read_number=200, batch_deliver_number=50)


def test_settings_that_make_no_sense_are_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="found 'fast'; allowed: a number and a time, such as 1000/s"):
        flow(None, delivery_rate="fast")
    with pytest.raises(PipelineError, match="batch_deliver_number is 100 and batch_read_number 10; allowed"):
        flow(None, batch_read_number=10)
    with pytest.raises(PipelineError, match=r"none\.toml"):
        flow(str(tmp_path / "none.toml"))
