"""``[audit]``: the log of who connected, who was refused, what was denied and what operators changed."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Flag, Integer, Text


@frozen
class AuditConfig(Section):
    """The places and the amount of the audit log."""

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
    max_lines: int = option(
        Integer(10, 1000000),
        1000,
        help="Lines of each kind in ten seconds, and a tenth of them for each address (of denials: each user). One line"
        " tells how many more there were. Changes by operators are not limited.",
        effect="Higher: a storm of strangers takes more of the disk; with 1000, each kind can"
        " take 3 GB a day, and more with long names.",
        example=10000,
    )
