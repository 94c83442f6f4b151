"""Topic Filters of the past.

``$history/at/TIME/FILTER`` stands for the retained messages of a time, ``$history/changes/FROM/TO/FILTER`` for the
changes between two times.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.moments import moment_in
from holdfast.topics import CHANGES_PREFIX, PAST_PREFIX, behind_time

#: The most Topic Filters of the past in one SUBSCRIBE: each costs a look into the history before SUBACK.
MOST_IN_SUBSCRIBE = 8


@frozen
class PastFilter:
    """A Topic Filter of the past: ``prefix`` with its times as they were written, and the filter behind it.

    It asks for the retained messages of the time ``at``, or for the changes after ``since`` and up to ``at``. Times are
    in milliseconds since the epoch. ``since`` is None where no changes are asked for.
    """

    prefix: str
    at: int
    topic_filter: str
    since: int | None = None

    def check_order(self) -> None:
        """Raise :class:`BadRequest` if the first time is later than the second one.

        That is checked once, when a Client asks. Later "-0s" may be after a time that was in the future then.
        """
        if self.since is not None and self.since > self.at:
            raise BadRequest(f"in {CHANGES_PREFIX}FROM/TO/FILTER, FROM is not later than TO")


def past_filter(text: str, now: int) -> PastFilter:
    """Return what a Topic Filter below ``$history`` asks for. Raises :class:`BadRequest`."""
    inner = behind_time(text)
    if inner == text or inner.startswith("$share/"):
        raise BadRequest(
            f"below $history, Topic Filters are {PAST_PREFIX}TIME/FILTER or {CHANGES_PREFIX}FROM/TO/FILTER"
        )
    prefix = text.removesuffix(inner)
    if prefix.startswith(PAST_PREFIX):
        return PastFilter(prefix, moment_in(prefix.removeprefix(PAST_PREFIX).removesuffix("/"), now), inner)
    begin, end = prefix.removeprefix(CHANGES_PREFIX).removesuffix("/").split("/")
    since, at = moment_in(begin, now), moment_in(end, now)
    return PastFilter(prefix, at, inner, since)
