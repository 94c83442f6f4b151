"""``[force_shutdown]``: limits on the memory of a slow connection."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag, Integer, Size


@frozen
class ForceShutdownConfig(Section):
    """The messages and bytes that may wait for one Network Connection before the broker closes it."""

    enable: bool = option(
        Flag(),
        True,
        help="Close a Network Connection that exceeds the limits below.",
        effect="false: a client that stops reading can use memory without limit.",
        example=False,
    )
    policy: str = option(
        Choice(("disconnect", "conflate")),
        "disconnect",
        help="What happens before the limits are reached. conflate: as soon as half of a limit waits for a connection,"
        " a new message that was published with RETAIN 1 takes the place of the waiting one of its topic. Other"
        " messages are queued as ever, and at the limits the connection is closed.",
        effect="conflate: slow clients stay connected through floods and miss values that newer ones have replaced.",
        example="conflate",
    )
    max_mailbox_size: int = option(
        Integer(0, unit="Application Messages; 0 is no limit"),
        100000,
        help="Application Messages that may wait in memory for one Network Connection. 0 = no limit.",
        effect="Higher: slow clients stay connected longer and hold more memory.",
        example=10000,
    )
    max_bytes: int = option(
        Size("1KB", "64GB", zero="no limit"),
        "32MB",
        help="Bytes of all packets that may wait in memory for one Network Connection. 0 = no limit. The broker stops"
        " reading from a client much earlier, when 64 KiB of answers wait for it (all packets but PUBLISH).",
        effect="Higher: slow clients stay connected longer and hold more memory.",
        example="8MB",
    )
