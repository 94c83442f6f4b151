"""``[log]``: what the broker writes to its log."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Flag


@frozen
class LogConfig(Section):
    """The lines that can be switched off."""

    connections: bool = option(
        Flag(),
        True,
        help="Log each client that connects, and each that goes with the reason; at most 100 such lines a second.",
        effect="false: only refusals, faults of clients and forced ends are logged.",
        example=False,
    )
