"""The deliveries to subscriptions: messages, bytes, and the cost of their replays. Pure."""

from __future__ import annotations

from attrs import frozen

from holdfast.retained.api import FlowSettings
from holdfast_pipeline.filters.replay_cost import least_seconds, reads, slices
from holdfast_pipeline.filters.requested_filters import InvalidFilter, Replayed, RequestedFilter


@frozen
class FilterDelivery:
    """The retained messages that one subscription to a Topic Filter receives.

    A replay takes at least ``reads`` batches and ``slices`` slices. ``seconds`` is the least time that the rates allow
    for a replay that runs alone, None without a rate.
    """

    topic_filter: str
    subscriptions: int
    replayed: Replayed
    messages: int
    bytes: int
    reads: int
    slices: int
    seconds: float | None

    @property
    def messages_together(self) -> int:
        """The messages for all subscriptions to the filter."""
        return self.messages * self.subscriptions

    @property
    def bytes_together(self) -> int:
        """The bytes of payload for all subscriptions to the filter."""
        return self.bytes * self.subscriptions

    @property
    def is_replayed(self) -> bool:
        """Whether a subscription to the filter is followed by a replay."""
        return self.replayed is Replayed.YES


@frozen
class FilterDeliveries:
    """The deliveries at ``taken_at`` (milliseconds since the epoch), the most bytes first, and the invalid filters."""

    taken_at: int
    deliveries: tuple[FilterDelivery, ...]
    refused: tuple[InvalidFilter, ...]

    @property
    def subscriptions(self) -> int:
        """The number of all subscriptions."""
        return sum(one.subscriptions for one in self.deliveries)

    @property
    def messages(self) -> int:
        """The messages for all subscriptions, if they were all made at once."""
        return sum(one.messages_together for one in self.deliveries)

    @property
    def bytes(self) -> int:
        """The bytes of payload for all subscriptions, if they were all made at once."""
        return sum(one.bytes_together for one in self.deliveries)


def delivery_of(requested: RequestedFilter, messages: int, size: int, flow: FlowSettings) -> FilterDelivery:
    """Return the delivery of a filter that matches this number of messages with this number of bytes."""
    return FilterDelivery(
        requested.topic_filter, requested.subscriptions, requested.replayed, messages, size,
        reads(flow, messages, size), slices(flow, messages), least_seconds(flow, messages),
    )  # fmt: skip
