"""Conditions: when an alarm begins, and when it ends.

How it works. A condition measures one number. The alarm begins after ``begins_after`` looks in a row at
``begins`` or beyond, and ends after ``ends_after`` looks in a row back at ``ends``. The two limits differ, so a number
that moves about one of them raises no series of alarms. For the days that a certificate has left, ``ends`` is above
``begins``:

    begins 14 days, ends 14.1 days     left: 15 -> nothing    14 -> begins    14.05 -> stays    90 -> ends

A disk may never have had much more room than the limit. So its alarm ends at the limit, but only after ``ends_after``
looks there. A number that cannot be measured now changes nothing. The message of an alarm has the present number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from attrs import field, frozen

from holdfast.alarms.alarm import Severity


@frozen(kw_only=True)
class Condition:
    """The condition of one alarm. ``measure`` returns the number, or None if it is not known now.

    ``meaning`` describes the problem for the documentation, ``remedy`` tells the operator's next step. ``tell`` returns
    the sentence with the number. ``details`` returns more numbers.
    """

    name: str
    severity: Severity
    meaning: str
    remedy: str
    measure: Callable[[], float | None]
    begins: float
    ends: float
    tell: Callable[[float], str]
    begins_after: int = 1
    ends_after: int = 1
    details: Callable[[], Mapping[str, object]] = field(default=dict)

    def is_bad(self, value: float) -> bool:
        """Tell whether the alarm may begin."""
        return value >= self.begins if self.ends <= self.begins else value <= self.begins

    def is_good(self, value: float) -> bool:
        """Tell whether the alarm may end."""
        return value <= self.ends if self.ends <= self.begins else value >= self.ends


class Growth:
    """The growth of a running total over the last looks. Each call is one look; ``latest`` is its result."""

    def __init__(self, total: Callable[[], float | None], looks: int) -> None:
        self._total = total
        self._seen: deque[float] = deque(maxlen=looks + 1)
        self.latest = 0.0

    def __call__(self) -> float | None:
        """Look at the total, and return its growth; None if the total is unknown."""
        total = self._total()
        if total is None:
            return None
        if self._seen and total < self._seen[-1]:
            self._seen.clear()  # it has begun anew
        self._seen.append(total)
        self.latest = total - self._seen[0]
        return self.latest
