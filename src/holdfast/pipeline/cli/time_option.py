"""Times as people write them on a command line: the same ones as those of ``holdfast retainer``."""

from __future__ import annotations

import time

from holdfast.pipeline.errors import PipelineError
from holdfast.times import ALLOWED, BadTime, moment_of


def milliseconds(text: str) -> int:
    """Return a time in milliseconds since the epoch. Without a zone it is in UTC. Raises :class:`PipelineError`."""
    try:
        return moment_of(text, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise PipelineError(f"{text!r} is no time; write it as {ALLOWED}") from error
