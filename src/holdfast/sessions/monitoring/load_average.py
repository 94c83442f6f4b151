"""Load averages: the growth of a running total, averaged over the last minutes."""

from __future__ import annotations

from math import exp

#: the time constant of each average, in seconds, by the name of its topic
PERIODS = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class LoadAverage:
    """The growth of one running total per minute, as exponentially weighted averages like those of mosquitto.

    An average moves towards the growth of the last interval by ``1 - exp(-interval / period)``. All begin at 0.
    """

    def __init__(self, total: int = 0) -> None:
        self._total = total
        self._averages = dict.fromkeys(PERIODS, 0.0)

    def update(self, total: int, interval: float) -> dict[str, float]:
        """Take the total ``interval`` seconds after the last one. Returns the averages by period."""
        if interval > 0:
            per_minute = 60 * (total - self._total) / interval
            self._total = total
            for name, period in PERIODS.items():
                self._averages[name] = per_minute + exp(-interval / period) * (self._averages[name] - per_minute)
        return self._averages
