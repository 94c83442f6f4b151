"""Topic Filters: those that a job works on, their deliveries, and the cost of their replays."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import evolve, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.config import ConfigError, load
from holdfast.core.topics import InvalidTopicFilter, check_topic_filter, is_sys, split_shared
from holdfast.core.units import Rate, parse_rate
from holdfast.retained.api import FlowSettings, flow_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.lake import Lake
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# The cost of a replay under settings of flow control: batches, slices and seconds. Pure.


def reads(flow: FlowSettings, messages: int, payload_bytes: int) -> int:
    """Return the least number of batches. A batch ends at ``batch_read_number``, or at 1 MiB."""
    return max(_times(messages, flow.batch_read_number), _times(payload_bytes, flow.max_batch_bytes))


def slices(flow: FlowSettings, messages: int) -> int:
    """Return the least number of slices. Between two slices, replays of other Clients take their turns."""
    return _times(messages, flow.batch_deliver_number or flow.batch_read_number)


def least_seconds(flow: FlowSettings, messages: int) -> float | None:
    """Return the least time that the rates allow for a replay that runs alone; None without rates."""
    found = [seconds_at(rate, messages) for rate in (flow.delivery_rate, flow.client_rate)]
    return max((one for one in found if one is not None), default=None)


def seconds_at(rate: Rate | None, messages: int) -> float | None:
    """Return the least time that a rate allows for the messages; None without a rate.

    After a pause, a rate lets its whole amount pass at once: 1000/s delivers 3000 messages in 2 seconds.
    """
    return None if rate is None else max(0.0, (messages - rate.amount) / rate.per_second)


def _times(amount: int, at_once: int) -> int:
    return -(-amount // at_once)


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


# The deliveries to subscriptions: messages, bytes, and the cost of their replays. Pure.


@frozen
class FilterDelivery:
    """The retained messages that one subscription to a Topic Filter receives.

    A replay takes at least ``reads`` batches and ``slices`` slices. ``seconds`` is the least time that the rates allow
    for a replay that runs alone, None without a rate.
    """

    topic_filter: str
    subscriptions: int
    replayed: Replayed
    messages: int
    bytes: int
    reads: int
    slices: int
    seconds: float | None

    @property
    def messages_together(self) -> int:
        """The messages for all subscriptions to the filter."""
        return self.messages * self.subscriptions

    @property
    def bytes_together(self) -> int:
        """The bytes of payload for all subscriptions to the filter."""
        return self.bytes * self.subscriptions

    @property
    def is_replayed(self) -> bool:
        """Whether a subscription to the filter is followed by a replay."""
        return self.replayed is Replayed.YES


@frozen
class FilterDeliveries:
    """The deliveries at ``taken_at`` (milliseconds since the epoch), the most bytes first, and the invalid filters."""

    taken_at: int
    deliveries: tuple[FilterDelivery, ...]
    refused: tuple[InvalidFilter, ...]

    @property
    def subscriptions(self) -> int:
        """The number of all subscriptions."""
        return sum(one.subscriptions for one in self.deliveries)

    @property
    def messages(self) -> int:
        """The messages for all subscriptions, if they were all made at once."""
        return sum(one.messages_together for one in self.deliveries)

    @property
    def bytes(self) -> int:
        """The bytes of payload for all subscriptions, if they were all made at once."""
        return sum(one.bytes_together for one in self.deliveries)


def delivery_of(requested: RequestedFilter, messages: int, size: int, flow: FlowSettings) -> FilterDelivery:
    """Return the delivery of a filter that matches this number of messages with this number of bytes."""
    return FilterDelivery(
        requested.topic_filter, requested.subscriptions, requested.replayed, messages, size,
        reads(flow, messages, size), slices(flow, messages), least_seconds(flow, messages),
    )  # fmt: skip


# The settings of flow control that a command works with: from the broker's file and from its own options.


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


# Match many Topic Filters with many topics at once.
#
# How it works: the filters form a tree of levels, stored as a table of edges. ``a/+`` and ``a/#`` give these edges::
#
#     node  way    child
#        0  a          1
#        1  +          2
#        2  +end      -1    the filter at place 0 ends here
#        1  #         -2    the filter at place 1 ends here
#
# All topics walk down the tree together: each join with the table goes one level deeper. A topic follows the edge of
# its own level, the edge ``+``, and the edges that end a filter. A match is a negative node, and the edge ``+stay``
# keeps it until the last join. So the cost grows with the number of edges that topics can follow, not with the number
# of filters.

#: Edges that cannot be the level of a topic: a Topic Name has no ``+`` and no ``#``.
_PLUS, _MULTI, _END, _STAY = "+", "#", "+end", "+stay"
_ROOT = 0
_KINDS = (("node", pa.int64()), ("way", pa.string()), ("child", pa.int64()))
_EDGES = StructType(
    [StructField("node", LongType()), StructField("way", StringType()), StructField("child", LongType())]
)


def matched(topics: DataFrame, topic_filters: Sequence[str]) -> DataFrame:
    """Return a row for each pair of a topic and a matching Topic Filter.

    ``topics`` has the columns ``topic`` and ``size``. The filters are valid, not shared, different, and have at most
    ``MOST_LEVELS`` levels. The returned columns are ``place``, the filter's place in the list, and ``size``.
    """
    edges = F.broadcast(_edges(topics.sparkSession, topic_filters))
    deepest = max((len(_levels(one)) for one in topic_filters), default=0)
    rows = topics.select(F.split("topic", "/").alias("levels"), "size", F.lit(_ROOT).cast("long").alias("node"))
    for depth in range(deepest + 1):
        ways = rows.select("levels", "size", "node", F.explode(_ways(depth)).alias("way"))
        rows = ways.join(edges, ["node", "way"]).select("levels", "size", F.col("child").alias("node"))
    # Only matches, whose nodes are negative, are left after the last level.
    return rows.select((-F.col("node") - 1).alias("place"), "size")


def _ways(depth: int) -> Column:
    """Return the array of the edges that a topic may follow from a node at a depth."""
    level = F.get("levels", F.lit(depth))
    every = F.array(level, F.lit(_PLUS), F.lit(_MULTI))
    if depth == 0:
        # A leading wildcard does not match topics that begin with $ [MQTT5-4.7.2-1].
        return F.when(level.startswith("$"), F.array(level)).otherwise(every)
    count = F.size("levels")
    return (
        F.when(F.col("node") < _ROOT, F.array(F.lit(_STAY)))
        .when(count > depth, every)
        # "a/#" also matches "a" [MQTT5-4.7.1-2].
        .when(count == depth, F.array(F.lit(_END), F.lit(_MULTI)))
        .otherwise(F.array().cast("array<string>"))
    )


def _edges(spark: SparkSession, topic_filters: Sequence[str]) -> DataFrame:
    nodes: dict[tuple[int, str], int] = {}
    matches: list[tuple[int, str, int]] = []
    for place, topic_filter in enumerate(topic_filters):
        node = _ROOT
        for level in _levels(topic_filter):
            node = nodes.setdefault((node, level), len(nodes) + 1)
        match = -place - 1
        matches += [(node, _MULTI if topic_filter.endswith("#") else _END, match), (match, _STAY, match)]
    rows = [(*edge, child) for edge, child in nodes.items()] + matches
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    table = {name: pa.array(values, kind) for (name, kind), values in zip(_KINDS, columns, strict=True)}
    return spark.createDataFrame(pa.table(table), _EDGES)


def _levels(topic_filter: str) -> list[str]:
    levels = topic_filter.split("/")
    return levels[:-1] if levels[-1] == "#" else levels


# The Topic Filters of the Sessions in a broker's database.

_STATEMENT = (
    "SELECT topic_filter, count(*), sum(CASE WHEN retain_handling < 2 THEN 1 ELSE 0 END) "
    "FROM session_subscriptions GROUP BY topic_filter ORDER BY topic_filter"
)


def of_sessions(snapshot: Snapshot) -> RequestedFilters:
    """Read the subscriptions of all Sessions in a database. Only Sessions that outlive a connection are stored.

    A lake knows none.
    """
    if isinstance(snapshot.source, Lake):
        return RequestedFilters()
    with snapshot.source.transaction() as transaction:
        rows = transaction.rows(_STATEMENT)
    reasons = {text: complaint(text) for text, _, _ in rows}
    return RequestedFilters(
        tuple(
            RequestedFilter(text, int(replaying or count), replayed(text) if replaying else Replayed.DECLINED)
            for text, count, replaying in rows
            if not reasons[text]
        ),
        tuple(InvalidFilter(0, text, reason) for text, reason in reasons.items() if reason),
    )
