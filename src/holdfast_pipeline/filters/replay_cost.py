"""The cost of a replay under settings of flow control: batches, slices and seconds. Pure."""

from __future__ import annotations

from holdfast.core.units import Rate
from holdfast.retained.api import FlowSettings


def reads(flow: FlowSettings, messages: int, payload_bytes: int) -> int:
    """Return the least number of batches. A batch ends at ``batch_read_number``, or at 1 MiB."""
    return max(_times(messages, flow.batch_read_number), _times(payload_bytes, flow.max_batch_bytes))


def slices(flow: FlowSettings, messages: int) -> int:
    """Return the least number of slices. Between two slices, replays of other Clients take their turns."""
    return _times(messages, flow.batch_deliver_number or flow.batch_read_number)


def least_seconds(flow: FlowSettings, messages: int) -> float | None:
    """Return the least time that the rates allow for a replay that runs alone; None without rates."""
    found = [seconds_at(rate, messages) for rate in (flow.delivery_rate, flow.client_rate)]
    return max((one for one in found if one is not None), default=None)


def seconds_at(rate: Rate | None, messages: int) -> float | None:
    """Return the least time that a rate allows for the messages; None without a rate.

    After a pause, a rate lets its whole amount pass at once: 1000/s delivers 3000 messages in 2 seconds.
    """
    return None if rate is None else max(0.0, (messages - rate.amount) / rate.per_second)


def _times(amount: int, at_once: int) -> int:
    return -(-amount // at_once)
