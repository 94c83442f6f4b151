"""The figures of a report, as plain values. Times are milliseconds since the epoch, ages are seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from attrs import frozen

from holdfast.retained.api import FlowSettings
from holdfast_pipeline.checks.discovered import NOTHING, Discovered
from holdfast_pipeline.filters import FilterDeliveries
from holdfast_pipeline.shapes import ShapesFound

# What the page of a shape shows besides its totals, as plain values. Times are milliseconds since the epoch.

#: The field of payloads that are numbers themselves. A field of an object has its name after a dot.
WHOLE = "$"
_SLUG = 40


@frozen
class ExampleMessage:
    """A retained message with the beginning of its payload, stored ``at``."""

    topic: str
    payload: str
    at: int


@frozen
class KindTotals:
    """The messages of a shape with one kind of payload, with the newest and the oldest of them."""

    kind: str
    messages: int
    bytes: int
    newest: ExampleMessage
    oldest: ExampleMessage


@frozen
class ValueStep:
    """The values of a step of time, which begins at ``at``."""

    at: int
    least: float
    mean: float
    most: float


@frozen
class NumberTotals:
    """The numbers in one field of the retained payloads: their quantiles, their distribution and their course.

    ``bands`` counts the values between ``low`` and ``high`` (the quantiles 0.01 and 0.99) in parts of equal width; the
    outermost ones also have the values beyond. ``course`` has the values in the history, empty without one.
    """

    field: str
    count: int
    least: float
    low: float
    median: float
    high: float
    most: float
    bands: tuple[int, ...] = ()
    course: tuple[ValueStep, ...] = ()


@frozen
class ShapeDetails:
    """The kinds of payloads of a shape, the most frequent first, and its fields with numbers."""

    kinds: tuple[KindTotals, ...] = ()
    numbers: tuple[NumberTotals, ...] = ()

    @property
    def newest(self) -> ExampleMessage | None:
        """The newest message."""
        return max((one.newest for one in self.kinds), key=lambda one: (one.at, one.topic), default=None)

    @property
    def oldest(self) -> ExampleMessage | None:
        """The oldest message."""
        return min((one.oldest for one in self.kinds), key=lambda one: (one.at, one.topic), default=None)


def anchor(shape: str) -> str:
    """Return the id of a shape's page: readable, the same in each report, and of letters, digits and hyphens only."""
    words = re.sub("[^a-z0-9]+", "-", shape.lower()).strip("-")[:_SLUG].strip("-")
    return f"shape-{words or 'x'}-{sha256(shape.encode()).hexdigest()[:8]}"


#: The bands of ages: the youngest age of each in seconds, and its name.
AGE_BANDS: tuple[tuple[int, str], ...] = (
    (0, "<1h"), (3_600, "1-6h"), (21_600, "6-24h"), (86_400, "1-7d"), (604_800, "7-30d"), (2_592_000, "30-90d"),
    (7_776_000, "90d-1y"), (31_536_000, ">1y"),
)  # fmt: skip
#: The number of single hours and of single days in the expiry outlook.
HOURS, DAYS = 48, 30


@frozen
class PrefixTotals:
    """The retained messages at and below a prefix of ``depth`` levels (1 or more).

    Ages are seconds since a message was stored. ``expires_first`` is the next expiry, None if no message expires.
    """

    depth: int
    prefix: str
    messages: int
    bytes: int
    oldest_age: int
    median_age: int
    newest_age: int
    expiring: int
    expires_first: int | None


@frozen
class ReportTotals:
    """The totals. ``clients`` is the number of publishers. ``lasting`` messages are stale and never expire."""

    messages: int
    bytes: int
    largest: int
    clients: int
    median_age: int
    expiring: int
    stale: int
    stale_bytes: int
    lasting: int
    lasting_bytes: int


@frozen
class BandTotals:
    """The messages and bytes of one part: a band of ages or a range of sizes, which ``key`` numbers."""

    key: int
    messages: int
    bytes: int


@frozen
class NamedTotals:
    """A publisher, prefix or topic, with its messages or changes. None is a publisher without a Client Identifier."""

    name: str | None
    messages: int
    bytes: int


@frozen
class ReportedMessage:
    """A retained message, stored ``at``."""

    topic: str
    client_id: str | None
    bytes: int
    at: int


@frozen
class Expiry:
    """The numbers of messages that expire in each of the next hours, on each of the next days, later, and never."""

    hours: tuple[int, ...]
    days: tuple[int, ...]
    later: int
    never: int


@frozen
class ChangeStep:
    """The changes in one step of time, which begins at ``at``."""

    at: int
    sets: int
    clears: int
    expires: int
    bytes: int

    @property
    def changes(self) -> int:
        """All changes in the step."""
        return self.sets + self.clears + self.expires


@frozen(kw_only=True)
class History:
    """The changes between ``since`` and ``until``, in steps of ``step`` seconds. There may be none at the ends.

    ``untouched`` of the ``retained`` topics were stored once in this time and not updated since. ``apart`` are the
    Topic Filters of topics that are recorded for another time, or not at all: ``retained`` does not count them.
    """

    since: int
    until: int
    first_change: int
    last_change: int
    step: int
    changes: int
    churn: tuple[ChangeStep, ...]
    clients: tuple[NamedTotals, ...]
    prefixes: tuple[NamedTotals, ...]
    topics: tuple[NamedTotals, ...]
    retained: int
    untouched: int
    untouched_topics: tuple[str, ...]
    apart: tuple[str, ...] = ()

    @property
    def busiest(self) -> ChangeStep | None:
        """The step with the most changes."""
        return max(self.churn, key=lambda one: one.changes, default=None)


@frozen(kw_only=True)
class Figures:
    """All figures of a report on a ``database`` at ``taken_at``. A message is stale after ``stale_after`` seconds.

    ``details`` has the shapes with pages, by their texts. ``branches`` are the larger prefixes. ``stale`` are prefixes
    with stale messages only. ``deliveries`` is None if no Topic Filters were requested, ``history`` if the database has
    none. ``discovered`` has the figures of findings.
    """

    database: str
    taken_at: int
    stale_after: int
    totals: ReportTotals
    shapes: ShapesFound
    details: Mapping[str, ShapeDetails]
    branches: tuple[PrefixTotals, ...]
    stale: tuple[PrefixTotals, ...]
    sizes: tuple[BandTotals, ...]
    ages: tuple[BandTotals, ...]
    largest: tuple[ReportedMessage, ...]
    oldest: tuple[ReportedMessage, ...]
    clients: tuple[NamedTotals, ...]
    expiry: Expiry
    flow: FlowSettings
    deliveries: FilterDeliveries | None
    history: History | None
    discovered: Discovered = NOTHING
