"""An alarm: what is wrong, since when, and until when it was."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen


class Severity(Enum):
    """How bad it is."""

    WARNING = "warning"  #: clients are served, but something needs a look
    CRITICAL = "critical"  #: clients are refused or lose something, or soon will


@frozen(kw_only=True)
class Alarm:
    """An alarm. The ``message`` says what is wrong and what to do; ``details`` have the numbers.

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
        """Whether it is still so."""
        return self.deactivated_at is None
