"""Alarms: the active ones, a bounded number of past ones, and the conditions of their beginnings and ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from attrs import evolve, field, frozen
from twisted.logger import Logger

# An alarm: a problem with its message, its beginning and its end.


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


#: is told of each alarm that begins or ends
Told = Callable[[Alarm], None]


class Alarms:
    """The table of alarms. ``now`` returns milliseconds since the epoch.

    At most ``size_limit`` past alarms are kept, for ``validity_period`` seconds.
    """

    _log = Logger()

    def __init__(self, now: Callable[[], int], *, size_limit: int = 1000, validity_period: float = 86400.0) -> None:
        self._now = now
        self._valid = round(1000 * validity_period)
        self._active: dict[str, Alarm] = {}
        self._past: deque[Alarm] = deque(maxlen=size_limit)
        self._subscribers: list[Told] = []

    @property
    def active(self) -> list[Alarm]:
        """The active alarms, the oldest first."""
        return list(self._active.values())

    @property
    def past(self) -> list[Alarm]:
        """The past alarms that are not too old, the newest first."""
        oldest = self._now() - self._valid
        return [alarm for alarm in reversed(self._past) if (alarm.deactivated_at or 0) >= oldest]

    def is_active(self, name: str) -> bool:
        """Tell whether the alarm of this name is active."""
        return name in self._active

    def subscribe(self, told: Told) -> Callable[[], None]:
        """Call ``told`` with each alarm that begins or ends from now on. Return the function that ends this."""
        self._subscribers.append(told)

        def leave() -> None:
            if told in self._subscribers:
                self._subscribers.remove(told)

        return leave

    def begin(self, name: str, severity: Severity, message: str, details: Mapping[str, object]) -> None:
        """Begin an alarm. If it is active, only update its message and its numbers."""
        present = self._active.get(name)
        if present is not None:
            self._active[name] = evolve(present, message=message, details=details)
            return
        alarm = Alarm(name=name, severity=severity, message=message, details=details, activated_at=self._now())
        self._active[name] = alarm
        self._log.warn("alarm {name}: {text}", name=name, text=message)
        self._tell(alarm)

    def end(self, name: str) -> None:
        """End an alarm, if it is active."""
        alarm = self._active.pop(name, None)
        if alarm is None:
            return
        alarm = evolve(alarm, deactivated_at=self._now())
        self._past.append(alarm)
        self._log.info("alarm {name} has ended", name=name)
        self._tell(alarm)

    def clear_past(self) -> int:
        """Forget the past alarms. Return their number."""
        count = len(self._past)
        self._past.clear()
        return count

    def _tell(self, alarm: Alarm) -> None:
        for told in tuple(self._subscribers):
            try:
                told(alarm)
            except Exception:  # noqa: BLE001 - the others must hear of it too
                self._log.failure("a subscriber could not take the alarm {name}", name=alarm.name)


# Conditions: when an alarm begins, and when it ends.
#
# How it works. A condition measures one number. The alarm begins after ``begins_after`` looks in a row at ``begins`` or
# beyond, and ends after ``ends_after`` looks in a row back at ``ends``. The two limits differ, so a number that moves
# about one of them raises no series of alarms. For the days that a certificate has left, ``ends`` is above ``begins``:
#
#     begins 14 days, ends 14.1 days     left: 15 -> nothing    14 -> begins    14.05 -> stays    90 -> ends
#
# A disk may never have had much more room than the limit. So its alarm ends at the limit, but only after ``ends_after``
# looks there. A number that cannot be measured now changes nothing. The message of an alarm has the present number.


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
