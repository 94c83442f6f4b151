"""Figures for pages without a database, with ordinary or hostile names."""

from __future__ import annotations

from attrs import evolve

from holdfast.retained.limits import FlowSettings
from holdfast_pipeline.analysis.messages import KINDS
from holdfast_pipeline.checks.discovered import NOTHING, Discovered, Malformed
from holdfast_pipeline.filters import (
    FilterDeliveries,
    FilterDelivery,
    InvalidFilter,
    Replayed,
    least_seconds,
    reads,
    slices,
)
from holdfast_pipeline.report.figures import (
    AGE_BANDS,
    DAYS,
    HOURS,
    WHOLE,
    BandTotals,
    ChangeStep,
    ExampleMessage,
    Expiry,
    Figures,
    History,
    KindTotals,
    NamedTotals,
    NumberTotals,
    PrefixTotals,
    ReportedMessage,
    ReportTotals,
    ShapeDetails,
    ValueStep,
)
from holdfast_pipeline.shapes import ShapesFound, ShapeTotals

NOW = 1_700_000_000_000
DAY = 86_400_000
FLOW = FlowSettings()
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'-->]]></title></svg></style><script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "&lt;b&gt; &amp; &#x202e;",
    "\u202egnp.exe\u2066",
    "\x1b[2J\x00\x07\r\n",
    "javascript:document.title='owned'",
    "{{7*7}}${7*7}",
    "{b}{a|__proto__}",
    "",
    "x" * 65_535,
)


def branch(prefix: str, messages: int, size: int = 0) -> PrefixTotals:
    return PrefixTotals(
        prefix.count("/") + 1, prefix, messages, size or messages * 10, 400, 40, 4, messages // 3, NOW + DAY
    )


def delivery(
    topic_filter: str, subscriptions: int, messages: int, size: int, flow: FlowSettings = FLOW
) -> FilterDelivery:
    return FilterDelivery(
        topic_filter, subscriptions, Replayed.YES, messages, size,
        reads(flow, messages, size), slices(flow, messages), least_seconds(flow, messages),
    )  # fmt: skip


def history(names: tuple[str, ...]) -> History:
    talkers = tuple(NamedTotals(one, 100 - place, 1000) for place, one in enumerate(names))
    churn = tuple(ChangeStep(NOW - DAY + hour * 3_600_000, hour, 1, 2, 100 * hour) for hour in range(24))
    return History(
        since=NOW - DAY, until=NOW, first_change=NOW - DAY, last_change=NOW, step=3600, changes=348, churn=churn,
        clients=(NamedTotals(None, 3, 0), *talkers),
        prefixes=talkers, topics=talkers, retained=10, untouched=4, untouched_topics=names,
        apart=names,
    )  # fmt: skip


def shape(text: str, messages: int = 1000, unlike: int = 0) -> ShapeTotals:
    return ShapeTotals(
        text, "+/#", (2, 3), messages, messages * 10, "object", unlike, f"OBJECT<{text}: DOUBLE>", NOW - 60_000,
        NOW - 5 * DAY, 1, 2, 500.0, text,
    )  # fmt: skip


def malformed_in(*shapes: ShapeTotals) -> Discovered:
    """Return what a discovery finds in shapes with payloads of another kind."""
    return evolve(NOTHING, malformed=[Malformed(one.shape, one.messages, one.unlike, one.kind) for one in shapes])


def details(names: tuple[str, ...]) -> ShapeDetails:
    """Return details with numbers, and two kinds of payloads."""
    course = tuple(ValueStep(NOW - DAY + hour * 3_600_000, hour, hour + 1.5, hour + 2) for hour in range(24))
    numbers = tuple(
        NumberTotals(f".{one}", 1000, -3.0, 0.0, 12.0, 24.0, 1e9, tuple(range(24)), course) for one in names[:3]
    )
    kinds = tuple(
        KindTotals(kind, 900, 9000, ExampleMessage(one, one, NOW - 60_000), ExampleMessage(one, one, NOW - DAY))
        for kind, one in zip(KINDS, names, strict=False)
    )
    return ShapeDetails(kinds, (*numbers, NumberTotals(WHOLE, 5, 1.0, 1.0, 1.0, 1.0, 1.0, (5,) + (0,) * 23)))


def shapes_found(names: tuple[str, ...]) -> ShapesFound:
    shapes = tuple(shape(one, 1000 - place, place % 2) for place, one in enumerate(names))
    return ShapesFound(NOW, sum(one.messages for one in shapes), 10_000, 0, 1000, shapes)


def figures(names: tuple[str, ...] = ("plant", "home", "lab")) -> Figures:
    """Return the figures of a report in which all topics, clients and filters have these names."""
    branches = tuple(branch(one, 1000 - place) for place, one in enumerate(names))
    below = tuple(branch(f"{one}/{other}", 90) for one in names for other in names)
    ones = tuple(ReportedMessage(one, one, 1000, NOW - 5 * DAY) for one in names)
    found = tuple(delivery(one, 2, 100, 10_000) for one in names)
    messages = sum(one.messages for one in branches)
    return Figures(
        database="sqlite:////var/lib/holdfast.db",
        taken_at=NOW,
        stale_after=30 * 86_400,
        totals=ReportTotals(messages, messages * 10, 4000, 12, 7000, messages // 3, 30, 300, 20, 200),
        shapes=shapes_found(names),
        details={one: details(names) for one in names},
        branches=branches + below,
        stale=branches,
        sizes=tuple(BandTotals(key, 10 * key, 2**key) for key in range(13)),
        ages=tuple(BandTotals(key, 100 - key, 10) for key in range(len(AGE_BANDS))),
        largest=ones,
        oldest=ones,
        clients=tuple(NamedTotals(one, 10, 100) for one in (None, *names)),
        expiry=Expiry(tuple(range(HOURS)), tuple(range(DAYS)), 5, 6),
        flow=FLOW,
        deliveries=FilterDeliveries(NOW, found, tuple(InvalidFilter(3, one, "is none") for one in names)),
        history=history(names),
    )


def empty() -> Figures:
    """Return the figures of a database without messages, subscriptions and history."""
    return evolve(
        figures(), totals=ReportTotals(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), shapes=shapes_found(()), details={}, branches=(),
        stale=(), sizes=(), ages=(), largest=(), oldest=(), clients=(),
        expiry=Expiry((0,) * HOURS, (0,) * DAYS, 0, 0), deliveries=None,
        history=None,
    )  # fmt: skip
