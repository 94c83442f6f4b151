"""The settings of flow control, as plain values: the pipeline reads them too, without Twisted."""

from __future__ import annotations

from attrs import frozen

from holdfast.rates import Rate


@frozen
class FlowSettings:
    """Settings of flow control.

    ``batch_read_number`` (1 or more) and ``batch_deliver_number`` (0: all that was read) are retained messages,
    ``max_batch_bytes`` is the most one read may bring. The rates are retained messages of all replays together and of
    all replays of one Client; None stands for unlimited, as it does for ``max_concurrent_replays``.
    """

    batch_read_number: int = 1000
    batch_deliver_number: int = 100
    max_batch_bytes: int = 1 << 20
    delivery_rate: Rate | None = None
    client_rate: Rate | None = None
    max_concurrent_replays: int | None = None
