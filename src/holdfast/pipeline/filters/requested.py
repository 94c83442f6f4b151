"""Which Topic Filters are asked about: of the command line, of a file, or of the Sessions in the database."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from holdfast.pipeline.database.connection import Source
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.filters.matching import MOST_LEVELS
from holdfast.topics import InvalidTopicFilter, check_topic_filter, is_sys, split_shared

_LONGEST = 65_535  #: bytes of UTF-8
#: Begins a comment: no Topic Filter begins like that, though ``#`` alone is one.
_COMMENTS = ("# ", "#\t", "##")


class Replayed(StrEnum):
    """Whether a Subscription is sent what is retained, and why not."""

    YES = "yes"
    SHARED = "shared"  #: shared Subscriptions are sent none [MQTT5-4.8.2]
    DECLINED = "declined"  #: all who have it use Retain Handling 2
    SYS = "sys"  #: the broker's own topics, whose values are not in the database


@frozen
class Asked:
    """A Topic Filter, how many Subscriptions have it (1 or more), and whether they are sent what is retained."""

    topic_filter: str
    subscriptions: int
    replayed: Replayed


@frozen
class Refused:
    """What is no Topic Filter: where it was found (a line's number, from 1; 0 for the command line), and why."""

    line: int
    text: str
    reason: str


@frozen
class Questions:
    """All that is asked, each Topic Filter once, and what was refused."""

    asked: tuple[Asked, ...] = ()
    refused: tuple[Refused, ...] = ()

    def also(self, other: Questions) -> Questions:
        """Return what is asked here or there; the Subscriptions to a filter of both are added up."""
        found = {one.topic_filter: one for one in self.asked}
        for one in other.asked:
            before = found.get(one.topic_filter)
            if before is None or before.replayed is Replayed.DECLINED:
                found[one.topic_filter] = one
            elif one.replayed is not Replayed.DECLINED:
                together = before.subscriptions + one.subscriptions
                found[one.topic_filter] = Asked(one.topic_filter, together, one.replayed)
        return Questions(tuple(found.values()), self.refused + other.refused)


def of_lines(lines: Iterable[str]) -> Questions:
    """Read Topic Filters, one a line; a filter that comes twice stands for two Subscriptions.

    Empty lines and comments (``#`` and a space) are left out. Spaces are never cut off: they belong to the filter.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1))
    return _judged((number, text) for number, text in numbered if text.strip() and not text.startswith(_COMMENTS))


def of_options(given: Iterable[str]) -> Questions:
    """Read the Topic Filters of a command line, all of which are meant."""
    return _judged((0, text) for text in given)


def of_file(place: str) -> Questions:
    """Read a file of Topic Filters, "-" for standard input. Raises :class:`PipelineError` when it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes()
    except OSError as error:
        raise PipelineError(f"{place}: the Topic Filters cannot be read ({error.strerror})") from error
    # What is no UTF-8 becomes surrogates, which no Topic Filter contains.
    return of_lines(data.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n"))


def of_sessions(source: Source) -> Questions:
    """Read the Subscriptions of the Sessions in a database, as far as they are kept there."""
    statement = (
        "SELECT topic_filter, count(*), sum(CASE WHEN retain_handling < 2 THEN 1 ELSE 0 END) "
        "FROM session_subscriptions GROUP BY topic_filter ORDER BY topic_filter"
    )
    with source.reading() as reading:
        rows = reading.rows(statement)
    reasons = {text: _complaint(text) for text, _, _ in rows}
    return Questions(
        tuple(
            Asked(text, int(asking), _replayed(text)) if asking else Asked(text, count, Replayed.DECLINED)
            for text, count, asking in rows
            if not reasons[text]
        ),
        tuple(Refused(0, text, reason) for text, reason in reasons.items() if reason),
    )


def _judged(texts: Iterable[tuple[int, str]]) -> Questions:
    found: dict[str, int] = {}
    refused = []
    for number, text in texts:
        reason = _complaint(text)
        if reason:
            shown = text.encode(errors="surrogateescape").decode(errors="backslashreplace")  # surrogates are no output
            refused.append(Refused(number, shown, reason))
        else:
            found[text] = found.get(text, 0) + 1
    return Questions(tuple(Asked(text, count, _replayed(text)) for text, count in found.items()), tuple(refused))


def _replayed(topic_filter: str) -> Replayed:
    if split_shared(topic_filter)[0] is not None:
        return Replayed.SHARED
    return Replayed.SYS if is_sys(topic_filter) else Replayed.YES


def _complaint(text: str) -> str | None:
    try:
        if len(text.encode()) > _LONGEST:
            return f"a Topic Filter has at most {_LONGEST} bytes"
        _, inner = split_shared(text)
        check_topic_filter(inner, MOST_LEVELS)
    except UnicodeEncodeError:
        return "is no UTF-8"
    except InvalidTopicFilter as error:
        return str(error)
    return None
