"""``[sys_topics]``: the topics of the broker's own figures."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Duration


@frozen
class SysTopicsConfig(Section):
    """The interval at which the broker publishes its own topics. 0 means never."""

    sys_msg_interval: float = option(
        Duration("1s", "1d", zero="off", words={"disabled": 0.0}),
        "10s",
        help="Time between two publications of changed values below $SYS/broker/. disabled or 0s = off.",
        effect="Shorter: fresher values, and more messages to their subscribers. Off: no new values;"
        " after a reload, new Subscriptions get the last ones until a restart.",
        example="1m",
    )
