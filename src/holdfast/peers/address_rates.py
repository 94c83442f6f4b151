"""The rate of new connections from each address."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.scheduling.rates import Rate, TokenBucket

#: Addresses that are remembered. With more of them at once, those that were silent longest begin anew.
MOST_ADDRESSES = 8192

#: Silent addresses that are looked at for each new one: more than one, so that they become fewer.
_LOOKS = 2


class AddressRates:
    """The same rate for each group of addresses, at most ``most`` of them. ``now`` is in seconds of any clock."""

    def __init__(self, rate: Rate, most: int = MOST_ADDRESSES) -> None:
        self._rate = rate
        self._most = most
        #: from the group that was silent longest to the latest
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """Return how many groups are remembered."""
        return len(self._buckets)

    def allows(self, group: str, now: float) -> bool:
        """Tell whether one more connection of this group is within the rate."""
        bucket = self._buckets.get(group)
        return bucket is None or bucket.wait(1, now) == 0.0

    def count(self, group: str, now: float) -> None:
        """Count a connection of this group that :meth:`allows` has allowed."""
        buckets = self._buckets
        bucket = buckets.get(group)
        if bucket is None:
            self._forget(now)
            bucket = buckets[group] = TokenBucket(self._rate, now)
        buckets.move_to_end(group)
        bucket.take(1, now)

    def _forget(self, now: float) -> None:
        """Make room for a new group. A full bucket is worth no more than a new one."""
        buckets = self._buckets
        for _ in range(_LOOKS):
            if not buckets:
                return
            group, bucket = next(iter(buckets.items()))
            if len(buckets) < self._most and bucket.wait(self._rate.amount, now) > 0.0:
                return
            del buckets[group]
