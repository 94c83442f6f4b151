"""Topic Filters of the past: ``$history/at/TIME/FILTER``, the retained messages of a time."""

from __future__ import annotations

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.moments import moment_in
from holdfast.topics import PAST_PREFIX, behind_time

#: The most Topic Filters of the past in one SUBSCRIBE: each costs a look into the history before SUBACK.
MOST_IN_SUBSCRIBE = 8


@frozen
class PastFilter:
    """A Topic Filter of the past: ``prefix`` with its time as it was written, that time, and the filter behind it.

    ``at`` is in milliseconds since the epoch.
    """

    prefix: str
    at: int
    topic_filter: str


def past_filter(text: str, now: int) -> PastFilter:
    """Return what a Topic Filter below ``$history`` asks for. Raises :class:`BadRequest`."""
    inner = behind_time(text)
    if not text.startswith(PAST_PREFIX) or inner == text or inner.startswith("$share/"):
        raise BadRequest(f"below $history, Topic Filters are {PAST_PREFIX}TIME/FILTER")
    prefix = text.removesuffix(inner)
    return PastFilter(prefix, moment_in(prefix.removeprefix(PAST_PREFIX).removesuffix("/"), now), inner)
