"""What a report tells: plain figures, whoever has found them. Times are milliseconds since the epoch, ages seconds."""

from __future__ import annotations

from attrs import frozen

from holdfast.pipeline.filters.deliveries import Deliveries
from holdfast.retained.replay.flow_settings import FlowSettings

#: Ages at which messages are told apart, in seconds, with what they are called.
AGE_BANDS: tuple[tuple[int, str], ...] = (
    (0, "<1h"), (3_600, "1-6h"), (21_600, "6-24h"), (86_400, "1-7d"), (604_800, "7-30d"), (2_592_000, "30-90d"),
    (7_776_000, "90d-1y"), (31_536_000, ">1y"),
)  # fmt: skip
#: How far the expiry outlook goes: so many single hours, and so many single days.
HOURS, DAYS = 48, 30


@frozen
class Branch:
    """What is retained at a prefix of ``depth`` levels (1 or more) and below it.

    Ages are seconds since messages were stored; ``expires_first`` is in milliseconds since the epoch, None where
    nothing expires.
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
class Totals:
    """All of it: of ``clients`` distinct publishers; ``lasting`` messages never expire, and are older than asked."""

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
class Part:
    """A part of what is retained, in messages and bytes, by whatever ``key`` it was divided."""

    key: int
    messages: int
    bytes: int


@frozen
class Talker:
    """A publisher (None: there is no Client Identifier) or a prefix, with what it has retained or changed."""

    name: str | None
    messages: int
    bytes: int


@frozen
class One:
    """A retained message; ``at`` is when it was stored."""

    topic: str
    client_id: str | None
    bytes: int
    at: int


@frozen
class Expiry:
    """How many messages expire in each of the coming hours and days (from 0), later than all these, and never."""

    hours: tuple[int, ...]
    days: tuple[int, ...]
    later: int
    never: int


@frozen
class Churn:
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


@frozen
class History:
    """What the history tells of the time from ``since`` to ``until``: changes in steps of ``step`` seconds.

    ``untouched`` of the ``retained`` topics have been stored once in all this time, and never since.
    """

    since: int
    until: int
    step: int
    changes: int
    churn: tuple[Churn, ...]
    clients: tuple[Talker, ...]
    prefixes: tuple[Talker, ...]
    topics: tuple[Talker, ...]
    retained: int
    untouched: int
    untouched_topics: tuple[str, ...]

    @property
    def busiest(self) -> Churn | None:
        """The step with the most changes."""
        return max(self.churn, key=lambda one: one.changes, default=None)


@frozen
class Findings:
    """All that a report tells of a ``database`` at ``taken_at``; ``stale_after`` seconds a message is stale.

    ``branches`` are the larger prefixes, ``stale`` those below which all is stale. ``deliveries`` is None where no
    Topic Filters were asked about, ``history`` where there is none.
    """

    database: str
    taken_at: int
    stale_after: int
    totals: Totals
    branches: tuple[Branch, ...]
    stale: tuple[Branch, ...]
    sizes: tuple[Part, ...]
    ages: tuple[Part, ...]
    largest: tuple[One, ...]
    oldest: tuple[One, ...]
    clients: tuple[Talker, ...]
    expiry: Expiry
    flow: FlowSettings
    deliveries: Deliveries | None
    history: History | None
