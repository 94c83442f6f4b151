"""The Topic Filters that a job works on, checked: from a command line or from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from holdfast.core.topics import InvalidTopicFilter, check_topic_filter, is_sys, split_shared
from holdfast_pipeline.errors import PipelineError

#: Levels of a Topic Filter here: the job joins once for each level, and Spark plans no more than about 100 joins.
MOST_LEVELS = 50
_LONGEST = 65_535  #: bytes of UTF-8
#: A line that begins like this is a comment. No Topic Filter begins like this; ``#`` alone is a Topic Filter.
_COMMENTS = ("# ", "#\t", "##")


class Replayed(StrEnum):
    """Whether a subscription to a Topic Filter is followed by a replay, or why it is not."""

    YES = "yes"
    SHARED = "shared"  #: shared subscriptions receive no retained messages [MQTT5-4.8.2]
    DECLINED = "declined"  #: all its subscriptions use Retain Handling 2
    SYS = "sys"  #: the broker's own topics, whose values are not in the database


@frozen
class RequestedFilter:
    """A Topic Filter, the number of its subscriptions (1 or more), and whether they are followed by a replay."""

    topic_filter: str
    subscriptions: int
    replayed: Replayed


@frozen
class InvalidFilter:
    """A text that is not a Topic Filter, its line in the file (from 1; 0 for the command line), and the reason."""

    line: int
    text: str
    reason: str


@frozen
class RequestedFilters:
    """All requested Topic Filters, each once, and the refused texts."""

    filters: tuple[RequestedFilter, ...] = ()
    refused: tuple[InvalidFilter, ...] = ()

    def also(self, other: RequestedFilters) -> RequestedFilters:
        """Return the filters of both. The subscriptions to a filter that both have are added up.

        If both have a filter, its subscriptions with Retain Handling 2 do not count: they receive nothing.
        """
        found = {one.topic_filter: one for one in self.filters}
        for one in other.filters:
            before = found.get(one.topic_filter)
            if before is None or before.replayed is Replayed.DECLINED:
                found[one.topic_filter] = one
            elif one.replayed is not Replayed.DECLINED:
                together = before.subscriptions + one.subscriptions
                found[one.topic_filter] = RequestedFilter(one.topic_filter, together, one.replayed)
        return RequestedFilters(tuple(found.values()), self.refused + other.refused)


def of_lines(lines: Iterable[str]) -> RequestedFilters:
    """Read one Topic Filter from each line. A filter that occurs twice means two subscriptions.

    Empty lines and comments (``#`` and a space) are left out. Spaces are never removed: they belong to the filter.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1))
    return _checked((number, text) for number, text in numbered if text.strip() and not text.startswith(_COMMENTS))


def of_file(path: str) -> RequestedFilters:
    """Read a file of Topic Filters, "-" for standard input. Raises :class:`PipelineError` if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise PipelineError(f"{path}: the Topic Filters cannot be read ({error.strerror})") from error
    # Bytes that are not UTF-8 become surrogates. No Topic Filter contains one, so the check refuses such a line.
    return of_lines(data.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n"))


def _checked(texts: Iterable[tuple[int, str]]) -> RequestedFilters:
    found: dict[str, int] = {}
    refused = []
    for line, text in texts:
        reason = complaint(text)
        if reason:
            # Surrogates cannot be written to a terminal or a file.
            shown = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
            refused.append(InvalidFilter(line, shown, reason))
        else:
            found[text] = found.get(text, 0) + 1
    filters = (RequestedFilter(text, count, replayed(text)) for text, count in found.items())
    return RequestedFilters(tuple(filters), tuple(refused))


def replayed(topic_filter: str) -> Replayed:
    """Tell whether a subscription to a Topic Filter is followed by a replay."""
    if split_shared(topic_filter)[0] is not None:
        return Replayed.SHARED
    return Replayed.SYS if is_sys(topic_filter) else Replayed.YES


def complaint(text: str) -> str | None:
    """Return why a text is not a Topic Filter, None if it is one."""
    try:
        if len(text.encode()) > _LONGEST:
            return f"a Topic Filter has at most {_LONGEST} bytes"
        _, inner = split_shared(text)
        check_topic_filter(inner, MOST_LEVELS)
    except UnicodeEncodeError:
        return "is not UTF-8"
    except InvalidTopicFilter as error:
        return str(error)
    return None
