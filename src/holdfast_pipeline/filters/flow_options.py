"""The settings of flow control that a command works with: from the broker's file and from its own options."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from holdfast.config import ConfigError, load
from holdfast.core.units import Rate, parse_rate
from holdfast.retained.api import FlowSettings, flow_of
from holdfast_pipeline.errors import PipelineError


def flow_settings(
    config: str | None,
    batch_read_number: int | None = None,
    batch_deliver_number: int | None = None,
    delivery_rate: str | None = None,
) -> FlowSettings:
    """Return the settings in a broker's file (the defaults without a file). The other arguments override them.

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


def _rate(text: str) -> Rate | None:
    if text == "infinity":
        return None
    try:
        return parse_rate(text)
    except ValueError:
        raise PipelineError(
            f"delivery-rate: found {text!r}; allowed: a number and a time, such as 1000/s or 100/100ms, or infinity"
        ) from None
