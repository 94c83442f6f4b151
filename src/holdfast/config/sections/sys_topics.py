"""``[sys_topics]``: what the broker tells of itself."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Duration


@frozen
class SysTopicsConfig(Section):
    """How often the broker publishes its own topics. 0 stands for never."""

    sys_msg_interval: float = option(
        Duration("1s", "1d", zero="off", words={"disabled": 0.0}),
        "10s",
        help="Time between two publications of the values below $SYS/broker/ that have changed. disabled or 0s = off.",
        effect="Shorter: fresher values, and more messages to whoever subscribes to them. Off: there are none.",
        example="1m",
    )
