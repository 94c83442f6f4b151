"""An operator finds, restores, watches and kicks, all in the dashboard, with a fleet's retained messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.dashboard.conftest import CHROMIUM
from tests.e2e.fleet import configured, fill_fleet
from tests.e2e.operator_walk import Walk, window
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

#: seconds that an operator needs at most, from the start of the broker
_MOST = 120.0


@pytest.mark.parametrize("topics", [20_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_an_operator_walks_through_the_dashboard_within_two_minutes(topics: int, tmp_path: Path) -> None:
    """From the start of the broker: find a device, see who cleared a floor, restore it, watch a replay, kick a client.

    The browser's console has no error at the end.
    """
    fill_fleet(configured(tmp_path), topics)
    broker = BrokerProcess(
        tmp_path, "--config", str(tmp_path / "holdfast.toml"), admin="tcp:0:interface=127.0.0.1"
    )  # fmt: skip
    begin = time.monotonic()
    broker.start()
    try:
        with window() as page:
            walk = Walk(page, broker)
            walk.all()
            seconds = time.monotonic() - begin
        assert seconds < _MOST, walk.times
        assert broker.stop() == (0, "")
    finally:
        broker.end()
