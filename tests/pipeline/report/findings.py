"""Findings to make pages of, without a database: of ordinary names, or of hostile ones."""

from __future__ import annotations

from attrs import evolve

from holdfast.pipeline.filters.deliveries import Deliveries, Delivery
from holdfast.pipeline.filters.replay_cost import least_seconds, reads, slices
from holdfast.pipeline.filters.requested_filters import InvalidFilter, Replayed
from holdfast.pipeline.report.findings import (
    AGE_BANDS,
    DAYS,
    HOURS,
    Branch,
    Churn,
    Expiry,
    Findings,
    History,
    One,
    Part,
    Talker,
    Totals,
)
from holdfast.retained.replay.flow_settings import FlowSettings

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
    "",
    "x" * 65_535,
)


def branch(prefix: str, messages: int, size: int = 0) -> Branch:
    return Branch(prefix.count("/") + 1, prefix, messages, size or messages * 10, 400, 40, 4, messages // 3, NOW + DAY)


def delivery(topic_filter: str, subscriptions: int, messages: int, size: int, flow: FlowSettings = FLOW) -> Delivery:
    return Delivery(
        topic_filter, subscriptions, Replayed.YES, messages, size,
        reads(flow, messages, size), slices(flow, messages), least_seconds(flow, messages),
    )  # fmt: skip


def history(names: tuple[str, ...]) -> History:
    talkers = tuple(Talker(one, 100 - place, 1000) for place, one in enumerate(names))
    churn = tuple(Churn(NOW - DAY + hour * 3_600_000, hour, 1, 2, 100 * hour) for hour in range(24))
    return History(
        since=NOW - DAY, until=NOW, step=3600, changes=348, churn=churn, clients=(Talker(None, 3, 0), *talkers),
        prefixes=talkers, topics=talkers, retained=10, untouched=4, untouched_topics=names,
    )  # fmt: skip


def findings(names: tuple[str, ...] = ("plant", "home", "lab")) -> Findings:
    """Return what might be found where these are the names of everything."""
    branches = tuple(branch(one, 1000 - place) for place, one in enumerate(names))
    below = tuple(branch(f"{one}/{other}", 90) for one in names for other in names)
    ones = tuple(One(one, one, 1000, NOW - 5 * DAY) for one in names)
    found = tuple(delivery(one, 2, 100, 10_000) for one in names)
    messages = sum(one.messages for one in branches)
    return Findings(
        database="sqlite:////var/lib/holdfast.db",
        taken_at=NOW,
        stale_after=30 * 86_400,
        totals=Totals(messages, messages * 10, 4000, 12, 7000, messages // 3, 30, 300, 20, 200),
        branches=branches + below,
        stale=branches,
        sizes=tuple(Part(key, 10 * key, 2**key) for key in range(13)),
        ages=tuple(Part(key, 100 - key, 10) for key in range(len(AGE_BANDS))),
        largest=ones,
        oldest=ones,
        clients=tuple(Talker(one, 10, 100) for one in (None, *names)),
        expiry=Expiry(tuple(range(HOURS)), tuple(range(DAYS)), 5, 6),
        flow=FLOW,
        deliveries=Deliveries(NOW, found, tuple(InvalidFilter(3, one, "is none") for one in names)),
        history=history(names),
    )


def empty() -> Findings:
    """Return what is found where nothing is retained, nobody subscribes, and no history is kept."""
    return evolve(
        findings(), totals=Totals(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), branches=(), stale=(), sizes=(), ages=(), largest=(),
        oldest=(), clients=(), expiry=Expiry((0,) * HOURS, (0,) * DAYS, 0, 0), deliveries=None, history=None,
    )  # fmt: skip
