"""The tables about what the broker tells of itself: ``[log]``, ``[audit]``, ``[alarms]``, ``[sys_topics]``."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from holdfast.config.options import Choice, Duration, Flag, Section, Size, TakesEffect, Text, option

# ``[log]``: what the broker writes to its log, and in which form.


@frozen
class LogConfig(Section):
    """The form of the log, and the lines that can be switched off."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    formatter: str = option(
        Choice(("auto", "text", "json")),
        "auto",
        help="The form of the log: text for readers, or one JSON object a line for programs.",
        effect="auto: text on a terminal, JSON otherwise.",
        example="json",
    )
    level: str = option(
        Choice(("debug", "info", "warning", "error")),
        "info",
        help="The least important lines that are written.",
        effect="warning: connections, refused logins and faults of clients, starts and stops are not logged.",
        example="warning",
    )
    connections: bool = option(
        Flag(),
        True,
        help="Log each client that connects, and each end of a connection with its reason; at most 100 such lines a"
        " second.",
        effect="false: only refusals, faults of clients and forced ends are logged.",
        example=False,
        applies=TakesEffect.AT_ONCE,
    )


# ``[audit]``: the log of who connected, who was refused, what was denied and what operators changed.


@frozen
class AuditConfig(Section):
    """The places and the amount of the audit log."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    file: str = option(
        Text(allowed="the path of a file, relative or absolute, or an empty string for none"),
        "",
        help="File of the audit log: one JSON object a line. A relative path begins at the folder of this file. It is"
        " created with mode 0640, and opened again after it was renamed. Empty = no file.",
        effect="With a file: connections, refusals, denials and operators' actions are written to it.",
        example="/var/log/holdfast/audit.log",
    )
    journal: bool = option(
        Flag(),
        False,
        help="Write the audit log to the journal of systemd, as holdfast-audit.",
        effect="true: journalctl -t holdfast-audit shows it.",
        example=True,
    )
    connections: bool = option(
        Flag(),
        True,
        help="Write a line for each client that connects or leaves.",
        effect="false: all other events are written: refusals, denials, bans, alarms and operators' actions.",
        example=False,
    )


# ``[alarms]``: when the broker raises alarms.


@frozen
class AlarmsConfig(Section):
    """The limits at which alarms begin, and the past alarms that are kept."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    disk_free: int = option(
        Size("1MB", "1000000GB", zero="off"),
        "1GB",
        help="Alarm disk_nearly_full: the disk of node.data_dir has less free space than this.",
        effect="Higher: an earlier alarm. On a full disk, changes are refused.",
        example="10GB",
    )
    certificate_expiry: float = option(
        Duration("1h", "365d", zero="off"),
        "21d",
        help="Alarm certificate_expires: a certificate of a listener expires within this time.",
        effect="Longer: an earlier alarm.",
        example="7d",
    )


# ``[sys_topics]``: the topics of the broker's own figures.


@frozen
class SysTopicsConfig(Section):
    """The interval at which the broker publishes its own topics. 0 means never."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    sys_msg_interval: float = option(
        Duration("1s", "1d", zero="off", words={"disabled": 0.0}),
        "10s",
        help="Time between two publications of changed values below $SYS/broker/. disabled or 0s = off.",
        effect="Shorter: fresher values, and more messages to their subscribers. Off: no new values;"
        " after a reload, new Subscriptions get the last ones until a restart.",
        example="1m",
    )
