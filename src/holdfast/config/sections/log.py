"""``[log]``: what the broker writes to its log, and in which form."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag


@frozen
class LogConfig(Section):
    """The form of the log, and the lines that can be switched off."""

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
    )
