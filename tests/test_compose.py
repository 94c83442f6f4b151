"""The composition of the broker."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from twisted.internet import reactor

from holdfast.broker import BrokerService
from holdfast.compose import compose_broker
from holdfast.config import default


def test_building_the_broker_changes_nothing_outside_of_it(tmp_path: Path) -> None:
    """No setting of the process, no clock of the reactor, no file."""
    before = (sys.getswitchinterval(), gc.get_threshold(), reactor.seconds)
    config = default().override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    assert isinstance(broker, BrokerService)
    assert before == (sys.getswitchinterval(), gc.get_threshold(), reactor.seconds)
    assert not list(tmp_path.iterdir())
