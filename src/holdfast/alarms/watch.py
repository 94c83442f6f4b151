"""Looks at all conditions periodically, and begins and ends alarms."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.alarms.alarms import Alarms
from holdfast.alarms.conditions import Condition
from holdfast.log.lasting_failure import LastingFailure
from holdfast.scheduling.periodic import PeriodicJob

#: seconds between two looks
INTERVAL = 1.0


@define
class _Watched:
    condition: Condition
    failure: LastingFailure
    bad: int = 0  #: looks in a row
    good: int = 0


class AlarmWatch(Service):
    """Looks every second while it runs. If one condition cannot be measured, the others still are."""

    def __init__(self, alarms: Alarms, conditions: Sequence[Condition], clock: IReactorTime) -> None:
        self._alarms = alarms
        self.conditions = tuple(conditions)
        self._watched = [
            _Watched(each, LastingFailure(f"measuring the alarm {each.name}", "so this alarm neither begins nor ends"))
            for each in conditions
        ]
        self._job = PeriodicJob(self.look, name="looking for alarms", interval=INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        self._job.start(INTERVAL)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()

    def states(self) -> dict[tuple[str, ...], float]:
        """Return 1 for each active alarm, 0 for all others, by name."""
        return {(each.name,): float(self._alarms.is_active(each.name)) for each in self.conditions}

    def look(self) -> None:
        """Look at all conditions once."""
        for watched in self._watched:
            try:
                self._look_at(watched)
            except Exception:  # noqa: BLE001 - the other alarms must not depend on this one
                watched.failure.failed(Failure())
            else:
                watched.failure.succeeded()

    def _look_at(self, watched: _Watched) -> None:
        condition = watched.condition
        value = condition.measure()
        if value is None:
            return
        watched.bad = watched.bad + 1 if condition.is_bad(value) else 0
        watched.good = watched.good + 1 if condition.is_good(value) else 0
        if watched.good >= condition.ends_after:
            self._alarms.end(condition.name)
        elif watched.bad >= condition.begins_after or self._alarms.is_active(condition.name):
            message = f"{condition.tell(value)}. {condition.remedy}"
            self._alarms.begin(condition.name, condition.severity, message, condition.details())
