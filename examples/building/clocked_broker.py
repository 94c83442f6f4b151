"""``twistd`` with a broker whose time of day is the :class:`~examples.building.clock.DayClock` of the played day.

The environment variable HOLDFAST_DAY_CLOCK names the file of that clock. Timers, such as those of keep-alives, run in
real time. Only the sample has such a broker: every other broker takes its time from the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.scripts.twistd import run

from examples.building.clock import VARIABLE, DayClock
from holdfast.broker import compose
from holdfast.config import Config

#: Seconds between two sweeps of expired messages. An hour of the day may pass in a second.
_SWEEPS = 0.05

compose_broker = compose.compose_broker


def compose_with_clock(config: Config, **parts: Any) -> Any:
    """Build the broker with the day's clock. It acknowledges before the commit: the clock waits for each answer."""
    retainer = evolve(config.retainer, msg_clear_interval=_SWEEPS)
    quick = evolve(config, retainer=retainer, storage=evolve(config.storage, durability="async"))
    return compose_broker(quick, **(parts | {"now": DayClock(Path(os.environ[VARIABLE])).now}))


if __name__ == "__main__":
    compose.compose_broker = compose_with_clock
    run()
