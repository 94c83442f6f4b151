"""An alarm: a problem with its message, its beginning and its end."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen


class Severity(Enum):
    """How serious an alarm is."""

    WARNING = "warning"  #: the broker serves all clients, but needs attention
    CRITICAL = "critical"  #: clients are refused or lose messages, or will soon


@frozen(kw_only=True)
class Alarm:
    """An alarm. The ``message`` names the problem and its remedy; ``details`` have the numbers.

    The times are in milliseconds since the epoch; ``deactivated_at`` is None while the alarm is active.
    """

    name: str
    severity: Severity
    message: str
    details: Mapping[str, object] = field(factory=dict)
    activated_at: int
    deactivated_at: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether the alarm has not ended."""
        return self.deactivated_at is None
