"""The alarms that are active, and a bounded number of past ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from attrs import evolve
from twisted.logger import Logger

from holdfast.alarms.alarm import Alarm, Severity

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
