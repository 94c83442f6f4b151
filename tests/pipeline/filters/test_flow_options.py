"""The settings of flow control, from the broker's file and from options of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.units import Rate
from holdfast.retained.limits import FlowSettings
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.filters import flow_settings


def test_options_override_the_settings_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[retainer]\ndelivery_rate = "500/s"\n[retainer.flow_control]\nbatch_read_number = 300\n')
    assert flow_settings(None) == FlowSettings()
    assert flow_settings(str(file)) == FlowSettings(batch_read_number=300, delivery_rate=Rate(500, 1.0))
    assert flow_settings(str(file), 200, 50, "infinity") == FlowSettings(batch_read_number=200, batch_deliver_number=50)


def test_invalid_settings_are_refused_with_the_allowed_values(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="found 'fast'; allowed: a number and a time, such as 1000/s"):
        flow_settings(None, delivery_rate="fast")
    with pytest.raises(PipelineError, match="batch_deliver_number is 11 and batch_read_number 10; allowed"):
        flow_settings(None, batch_read_number=10, batch_deliver_number=11)
    with pytest.raises(PipelineError, match=r"none\.toml"):
        flow_settings(str(tmp_path / "none.toml"))
