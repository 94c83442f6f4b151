"""Budgets: how much is retained of what has a limit, known as an upper bound without asking the store.

A budget is what the store said when it was looked at, and all that was charged since as if it were new. So a message
that fits surely fits. One that may not fit is decided when the store has been looked at again (:mod:`ledger`).
"""

from __future__ import annotations

from attrs import define

from holdfast.hot_values import hot_frozen
from holdfast.retained.quota.limits import Limit, Quota, RetainRefused


@hot_frozen
class Growth:
    """By how much a message changes a budget: messages, and bytes of payloads."""

    messages: int
    bytes: int


_NONE = Growth(0, 0)


@define(eq=False)
class Budget:
    """What a quota is for, and how far it is used up.

    It is for what one Client has published, for topics that match a Topic Filter, or for everything. ``looked_at`` is
    when (seconds) it was learned last, None when it is not known. While a look at the store is under way, ``since`` is
    what has been charged meanwhile, and ``certain`` tells that this was exact.
    """

    quota: Quota
    over_messages: Limit
    over_bytes: Limit
    client_id: str | None = None
    topic_filter: str | None = None
    messages: int = 0
    bytes: int = 0
    looked_at: float | None = None
    since: Growth = _NONE
    certain: bool = True

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.quota.max_messages or self.quota.max_bytes)

    def refusal(self, growth: Growth) -> RetainRefused | None:
        """Return why there is no room for this, None if there is. What does not grow always has room."""
        quota = self.quota
        if growth.messages > 0 and 0 < quota.max_messages < self.messages + growth.messages:
            return RetainRefused(
                self.over_messages, f"{quota.key}max_retained_messages = {quota.max_messages} is reached{self._whose()}"
            )
        if growth.bytes > 0 and 0 < quota.max_bytes < self.bytes + growth.bytes:
            key = f"{quota.key}max_retained_bytes"
            return RetainRefused(self.over_bytes, f"{key} = {quota.max_bytes} would be exceeded{self._whose()}")
        return None

    def _whose(self) -> str:
        if self.client_id is not None:
            return f" by {self.client_id!r}"
        return "" if self.topic_filter is None else f" in {self.topic_filter!r}"

    def charge(self, growth: Growth, exact: bool) -> None:
        """Take note of a message that is retained."""
        self.messages += growth.messages
        self.bytes += growth.bytes
        self.since = Growth(self.since.messages + growth.messages, self.since.bytes + growth.bytes)
        self.certain = self.certain and exact

    def look(self) -> None:
        """The store is going to be looked at, with all that has been charged so far."""
        self.since = _NONE
        self.certain = True

    def learn(self, messages: int, size: int, seconds: float) -> None:
        """Take what was found."""
        self.messages = messages + self.since.messages
        self.bytes = size + self.since.bytes
        self.looked_at = seconds
