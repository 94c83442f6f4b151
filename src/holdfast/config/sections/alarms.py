"""``[alarms]``: when the broker raises alarms."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Duration, Integer, Size


@frozen
class AlarmsConfig(Section):
    """The limits at which alarms begin, and the past alarms that are kept."""

    size_limit: int = option(
        Integer(1, 10_000),
        1000,
        help="Most past alarms that the broker keeps. Beyond this number, it forgets the oldest one.",
        effect="Higher: a longer list, and a kilobyte of memory for each alarm.",
        example=100,
    )
    validity_period: float = option(
        Duration("1m", "30d"),
        "24h",
        help="Time for which the broker keeps a past alarm. A restart forgets all alarms; the audit log keeps them.",
        effect="Longer: a longer list.",
        example="7d",
    )
    disk_free: int = option(
        Size("1MB", "1000000GB", zero="off"),
        "1GB",
        help="Alarm disk_nearly_full: the disk of node.data_dir has less free space than this.",
        effect="Higher: an earlier alarm. On a full disk, changes are refused.",
        example="10GB",
    )
    disk_full: int = option(
        Size("1MB", "1000000GB", zero="off"),
        "50MB",
        help="With less free space on the disk of node.data_dir, /readyz answers 503.",
        effect="Higher: a load balancer sends clients to other brokers sooner.",
        example="500MB",
    )
    wal_size: int = option(
        Size("1MB", "1000000GB", zero="off"),
        "256MB",
        help="Alarm wal_growing: SQLite's write-ahead log is longer than this. It is usually below 50 MB.",
        effect="Higher: a later alarm. A long log makes reads and the next start slower.",
        example="1GB",
    )
    commit_time: float = option(
        Duration("1ms", "1m", zero="off"),
        "500ms",
        help="Alarm commits_slow: the commits of the last minute took longer than this on average.",
        effect="Shorter: an earlier alarm. Each PUBACK waits for a commit.",
        example="100ms",
    )
    reactor_lag: float = option(
        Duration("10ms", "1m", zero="off"),
        "240ms",
        help="Alarm reactor_lag_high: clients had to wait for this long in each of 3 seconds in a row.",
        effect="Shorter: an earlier alarm.",
        example="100ms",
    )
    certificate_expiry: float = option(
        Duration("1h", "365d", zero="off"),
        "21d",
        help="Alarm certificate_expires: a certificate of a listener expires within this time.",
        effect="Longer: an earlier alarm.",
        example="7d",
    )
    failed_logins: int = option(
        Integer(0, 1_000_000),
        20,
        help="Alarm logins_fail: at least this many logins failed in the last minute, or an address was banned for its"
        " failures. 0 = off.",
        effect="Lower: an earlier alarm.",
        example=50,
    )
    messages_dropped: int = option(
        Integer(0, 1_000_000_000),
        100,
        help="Alarm messages_dropped: at least this many messages were dropped in the last minute, because queues were"
        " full. 0 = off.",
        effect="Lower: an earlier alarm.",
        example=1,
    )
    replay_stalled: float = option(
        Duration("1s", "30d", zero="off"),
        "10m",
        help="Alarm replay_stalled: a replay has delivered nothing for this long, because its client does not read.",
        effect="Shorter: an earlier alarm.",
        example="1m",
    )
