"""The settings of flow control, as plain values. The pipeline reads them too, without Twisted."""

from __future__ import annotations

from attrs import frozen

from holdfast.scheduling.rates import Rate


@frozen
class FlowSettings:
    """The settings of flow control.

    ``batch_read_number`` (1 or more) and ``batch_deliver_number`` (0 for the whole batch) count retained messages: they
    are upper bounds, since slices are bounded by bytes and time too (:mod:`holdfast.retained.store.slice_size`).
    ``max_batch_bytes`` bounds one read. ``delivery_rate`` is for all replays together, ``client_rate`` for all replays
    of one client. None means unlimited, also for ``max_concurrent_replays``. ``max_replays_per_client`` is
    1 or more.
    """

    batch_read_number: int = 1000
    batch_deliver_number: int = 0
    max_batch_bytes: int = 1 << 20
    delivery_rate: Rate | None = None
    client_rate: Rate | None = None
    max_concurrent_replays: int | None = None
    max_replays_per_client: int = 16
