"""Times as people write them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.pipeline.problem import PipelineError

_FORMS = "write it as 2026-11-21T10:00:00Z, 2026-11-21 10:00 (UTC), 2026-11-21, or in milliseconds since the epoch"


def milliseconds(text: str) -> int:
    """Return a time in milliseconds since the epoch. Without a zone it is in UTC. Raises :class:`PipelineError`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise PipelineError(f"{text!r} is no time; {_FORMS}") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
