from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.watching.watched import WatchedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    broker = WatchedBroker(tmp_path, sys_msg_interval=10)
    yield broker
    broker.close()
