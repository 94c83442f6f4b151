"""What a replay of so many messages takes, by the settings of flow control. Pure."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from holdfast.config import ConfigError, load
from holdfast.config.units import parse_rate
from holdfast.pipeline.errors import PipelineError
from holdfast.rates import Rate
from holdfast.retained.configured import flow_of
from holdfast.retained.replay.flow_settings import FlowSettings


def flow(
    config: str | None,
    batch_read_number: int | None = None,
    batch_deliver_number: int | None = None,
    delivery_rate: str | None = None,
) -> FlowSettings:
    """Return the settings of a broker's file (the defaults without one), where nothing else is given.

    ``delivery_rate`` is written as in the file: "1000/s", or "infinity". Raises :class:`PipelineError`.
    """
    found = FlowSettings()
    if config is not None:
        try:
            found = flow_of(load(Path(config), allow_anonymous=True).retainer)
        except ConfigError as error:
            raise PipelineError(str(error)) from error
    if batch_read_number is not None:
        found = evolve(found, batch_read_number=batch_read_number)
    if batch_deliver_number is not None:
        found = evolve(found, batch_deliver_number=batch_deliver_number)
    if delivery_rate is not None:
        found = evolve(found, delivery_rate=_rate(delivery_rate))
    if found.batch_deliver_number > found.batch_read_number:
        raise PipelineError(
            f"batch_deliver_number is {found.batch_deliver_number} and batch_read_number {found.batch_read_number}; "
            "allowed: batch_deliver_number of at most batch_read_number"
        )
    return found


def reads(flow: FlowSettings, messages: int, payload_bytes: int) -> int:
    """Return how many batches are read at least: each ends at ``batch_read_number`` or ``max_batch_bytes``."""
    return max(_times(messages, flow.batch_read_number), _times(payload_bytes, flow.max_batch_bytes))


def deliveries(flow: FlowSettings, messages: int) -> int:
    """Return in how many slices at least messages are delivered, with other Clients' turns in between."""
    return _times(messages, flow.batch_deliver_number or flow.batch_read_number)


def seconds(rate: Rate | None, messages: int) -> float | None:
    """Return the shortest time in which messages may be delivered at a rate, after a pause; None without a rate."""
    return None if rate is None else max(0.0, (messages - rate.amount) / rate.per_second)


def expected(flow: FlowSettings, messages: int) -> float | None:
    """Return the seconds which the rates make one replay last at least when it runs alone; None without rates."""
    found = [seconds(rate, messages) for rate in (flow.delivery_rate, flow.client_rate)]
    return max((one for one in found if one is not None), default=None)


def _times(amount: int, at_once: int) -> int:
    return -(-amount // at_once)


def _rate(text: str) -> Rate | None:
    if text == "infinity":
        return None
    try:
        return parse_rate(text)
    except ValueError:
        raise PipelineError(
            f"delivery-rate: found {text!r}; allowed: a number and a time, such as 1000/s or 100/100ms, or infinity"
        ) from None
