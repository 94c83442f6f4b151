"""Commands, as a shell in the foreground starts them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from holdfast_pipeline.cli.running import END_SIGNALS


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Make sure that no signal is ignored, here and in commands, as it would be under nohup."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in END_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
