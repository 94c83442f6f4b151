"""The failures of one subject, such as an address, and a bounded table of them.

How it works. A record has two windows: of a minute, in which a few failures are free, and of ``window`` seconds, in
which failures add up to a ban. Each begins with the first failure after the last one has ended. Once a failure was not
free, no further failure is until the long window ends. An example with 5 free failures and a ban after 20:

    0 s      5 failures: answered at once
    1 s      the sixth: its answer waits for 1 s, the next ones for 2, 4, 8, 16, 32, 60, 60 ... s
    545 s    the twentieth: a ban

No record has a timer. A table forgets the record that was changed longest ago when it is full, and records that are
worth nothing when it adds one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from attrs import define, frozen

#: the records in one table: an attacker with more addresses makes the broker forget, but not grow
MOST_RECORDS = 50_000

_MINUTE = 60.0
#: records that are looked at for each new one: more than one, so that they become fewer
_LOOKS = 2


@frozen(kw_only=True)
class FailureLimits:
    """What failures cost.

    ``free`` failures in a minute are answered at once, each further one after twice the time of the one before, from
    ``shortest`` to ``longest`` seconds. ``most`` failures in ``window`` seconds are a ban of ``ban`` seconds.
    """

    free: int = 5
    shortest: float = 1.0
    longest: float = 60.0
    most: int = 20
    window: float = 600.0
    ban: float = 600.0


@define
class Record:
    """The failures of one subject. ``changed`` is the time of the last one."""

    began: float
    minute: float
    changed: float
    count: int = 0
    in_minute: int = 0
    delayed: int = 0

    def add(self, limits: FailureLimits, now: float) -> None:
        """Add a failure."""
        if now - self.began >= limits.window:
            self.began, self.count, self.delayed = now, 0, 0
        if now - self.minute >= _MINUTE:
            self.minute, self.in_minute = now, 0
        self.changed = now
        self.count += 1
        self.in_minute += 1
        if self.delayed or self.in_minute > limits.free:
            self.delayed += 1

    def take_back(self, count: int) -> None:
        """Forget some failures: whoever caused them has proved who he is."""
        self.count = max(0, self.count - count)
        self.in_minute = max(0, self.in_minute - count)
        self.delayed = max(0, self.delayed - count)

    def delay(self, limits: FailureLimits) -> float:
        """Return the seconds that the answer to the last failure waits."""
        if not self.delayed:
            return 0.0
        return min(limits.longest, limits.shortest * 2.0 ** min(self.delayed - 1, 64))

    def is_over(self, limits: FailureLimits, now: float) -> bool:
        """Tell whether the record is worth no more than a new one."""
        return now - self.changed >= max(limits.window, _MINUTE)


class Records:
    """The records of many subjects, at most ``most``. The keys are short: their owner bounds them."""

    def __init__(self, limits: FailureLimits, most: int = MOST_RECORDS) -> None:
        self._limits = limits
        self._most = most
        #: from the record that was changed longest ago to the latest
        self._records: OrderedDict[Hashable, Record] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def add(self, key: Hashable, now: float) -> Record:
        """Add a failure of this subject; return its record."""
        records = self._records
        record = records.get(key)
        if record is None:
            self._make_room(now)
            record = records[key] = Record(now, now, now)
        records.move_to_end(key)
        record.add(self._limits, now)
        return record

    def forget(self, key: Hashable) -> int:
        """Forget a subject; return the number of its failures."""
        record = self._records.pop(key, None)
        return 0 if record is None else record.count

    def take_back(self, key: Hashable, count: int) -> None:
        """Forget some failures of a subject."""
        record = self._records.get(key)
        if record is not None:
            record.take_back(count)
            if not record.count:
                del self._records[key]

    def _make_room(self, now: float) -> None:
        records = self._records
        for _ in range(_LOOKS):
            if not records:
                return
            key, record = next(iter(records.items()))
            if len(records) < self._most and not record.is_over(self._limits, now):
                return
            del records[key]
