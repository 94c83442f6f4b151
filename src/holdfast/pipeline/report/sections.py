"""The parts of the page: each says in a sentence what is to be seen, and shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from holdfast.pipeline.jobs.tree import Branch
from holdfast.pipeline.readable import moment, number, share, short, size, span
from holdfast.pipeline.report.charts import Bar, Step, bars, columns
from holdfast.pipeline.report.findings import AGE_BANDS, Findings, One, Part, Talker
from holdfast.pipeline.report.icicle import icicle, tiles
from holdfast.pipeline.report.markup import Content, Markup, el, name

_TABLED = 20


def section(key: str, title: str, *content: Content) -> Markup:
    """Return a part with a heading that can be linked to."""
    return el("section", el("h2", title, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title")


def table(heads: Sequence[str], rows: Iterable[Sequence[Content]], described: str) -> Markup:
    """Return a table that can be scrolled where the page is narrow."""
    head = el("tr", [el("th", one, scope="col") for one in heads])
    body = [el("tr", [el("td", cell) for cell in row]) for row in rows]
    whole = el("table", el("thead", head), el("tbody", body))
    return el("div", whole, class_="wide", role="region", aria_label=described, tabindex=0)


def topics(found: Findings) -> Markup:
    """Show the tree of topics by messages and by bytes."""
    totals = found.totals
    if not totals.messages:
        return section("topics", "Topics", el("p", "Nothing is retained."))
    by_messages = tiles(found.branches, lambda one: one.messages, totals.messages)
    by_bytes = tiles(found.branches, lambda one: one.bytes, totals.bytes)
    largest = sorted(found.branches, key=lambda one: (-one.messages, one.prefix))[:_TABLED]
    rows = [
        (name(one.prefix), number(one.messages), share(one.messages, totals.messages), size(one.bytes),
         span(one.median_age), span(one.newest_age), number(one.expiring))
        for one in largest
    ]  # fmt: skip
    return section(
        "topics",
        "Topics",
        el("p", "Each prefix is as high as its part of the whole, beside what it belongs to. What has less than a 400th"
           " of it is left out.", class_="soft"),
        el(
            "fieldset",
            el("input", type="radio", name="measure", id="by-messages", checked=""),
            el("label", "Messages", for_="by-messages"),
            el("input", type="radio", name="measure", id="by-bytes"),
            el("label", "Bytes", for_="by-bytes"),
            el("div", icicle(by_messages, totals.messages, totals.bytes, "Topics by messages"), class_="one"),
            el("div", icicle(by_bytes, totals.messages, totals.bytes, "Topics by bytes"), class_="other"),
            class_="choice",
            aria_label="What the map shows",
        ),
        el(
            "details",
            el("summary", "The same in figures"),
            table(("prefix", "messages", "share", "bytes", "median age", "newest", "expiring"), rows, "Prefixes"),
        ),
    )  # fmt: skip


def talkers(found: Findings) -> Markup:
    """Show who changes and who holds the most."""
    totals, history = found.totals, found.history
    held = el(
        "div",
        el("h3", "Publishers, by messages retained"),
        ranking(found.clients, totals.messages),
    )
    if history is None:
        return section(
            "talkers", "Top talkers",
            el("p", "There is no history, so that this tells what publishers have retained, and not how often they"
               " change it. Turn on retainer.history to see that.", class_="soft"),
            el("div", held, el("div", el("h3", "First levels, by messages retained"),
               ranking(_first_levels(found), totals.messages, 3)), class_="pair"),
        )  # fmt: skip
    return section(
        "talkers",
        "Top talkers",
        el("p", f"Of {number(history.changes)} changes since {moment(history.since)}.", class_="soft"),
        el(
            "div",
            el("div", el("h3", "Publishers, by changes"), ranking(history.clients, history.changes)),
            el("div", el("h3", "Prefixes, by changes"), ranking(history.prefixes, history.changes, 3)),
            el("div", el("h3", "Topics, by changes"), ranking(history.topics, history.changes, 3)),
            held,
            class_="pair",
        ),
    )


def churn(found: Findings) -> Markup:
    """Show the changes over time."""
    history = found.history
    if history is None:
        return section(
            "churn", "Changes over time",
            el("p", "There is no history: nothing is known of changes. Turn on retainer.history to see them here."),
        )  # fmt: skip
    first = history.since // 1000 // history.step
    last = history.until // 1000 // history.step
    known = {one.at // 1000 // history.step: one for one in history.churn}
    steps = []
    for place in range(first, last + 1):
        at, one = place * history.step * 1000, known.get(place)
        parts = (one.sets, one.clears, one.expires) if one else (0, 0, 0)
        told = f"{moment(at)}\n{number(parts[0])} set, {number(parts[1])} cleared, {number(parts[2])} expired"
        steps.append(Step(_day_or_hour(at, history.step), told + (f"; {size(one.bytes)}" if one else ""), parts))
    seconds = max(1, (history.until - history.since) / 1000)
    per_hour = history.changes / seconds * 3600
    busiest = max(history.churn, key=lambda one: one.sets + one.clears + one.expires, default=None)
    peak = ""
    if busiest is not None:
        peak = f", and {number(busiest.sets + busiest.clears + busiest.expires)} in the {span(history.step)} from "
        peak += moment(busiest.at)
    sentence = (
        f"{short(per_hour)} changes an hour on average{peak}. Times are in UTC; a column is {span(history.step)}."
    )
    return section(
        "churn",
        "Changes over time",
        el("p", sentence, class_="soft"),
        _legend("set", "cleared", "expired"),
        columns(steps, "Changes over time", short),
    )


def staleness(found: Findings) -> Markup:
    """Show how old what is retained is, and what nobody updates."""
    totals = found.totals
    steps = [
        Step(label, f"{label}: {number(part.messages)} messages ({share(part.messages, totals.messages)}), "
             f"{size(part.bytes)}", (part.messages,))
        for part, (_, label) in _filled(found.ages, AGE_BANDS)
    ]  # fmt: skip
    after = span(found.stale_after)
    sentence = (
        f"{number(totals.stale)} messages ({share(totals.stale, totals.messages)}, {size(totals.stale_bytes)}) have not"
        f" been stored anew for {after}; {number(totals.lasting)} of these never expire."
    )
    stale = [
        (name(one.prefix), number(one.messages), size(one.bytes), span(one.newest_age), span(one.oldest_age))
        for one in found.stale
    ]
    below = (
        table(("prefix", "messages", "bytes", "newest", "oldest"), stale, "Stale prefixes")
        if stale
        else el("p", f"There is no prefix below which all is older than {after}.", class_="soft")
    )
    return section(
        "stale",
        "Age",
        el("p", sentence, class_="soft"),
        columns(steps, "Messages by age", short, every_label=True),
        el("h3", f"Prefixes without anything newer than {after}"),
        below,
        el("h3", "Oldest messages"),
        _ones(found.oldest, found.taken_at),
        _untouched(found),
    )


def expiry(found: Findings) -> Markup:
    """Show what expires when."""
    outlook, taken_at = found.expiry, found.taken_at
    expiring = found.totals.expiring
    if not expiring:
        return section("expiry", "Expiry", el("p", "Nothing that is retained expires."))
    hours = [
        Step(f"{datetime.fromtimestamp(taken_at / 1000 + place * 3600, UTC):%H:%M}",
             f"in {place} to {place + 1} hours (from {moment(taken_at + place * 3_600_000)})\n{number(count)} messages",
             (count,))
        for place, count in enumerate(outlook.hours)
    ]  # fmt: skip
    days = [
        Step(f"{datetime.fromtimestamp(taken_at / 1000 + place * 86400, UTC):%d %b}",
             f"in {place} to {place + 1} days (from {moment(taken_at + place * 86_400_000)})\n{number(count)} messages",
             (count,))
        for place, count in enumerate(outlook.days)
    ]  # fmt: skip
    sentence = (
        f"{number(expiring)} messages ({share(expiring, found.totals.messages)}) expire unless they are updated:"
        f" {number(sum(outlook.hours[:24]))} within a day, {number(sum(outlook.days))} within {len(outlook.days)} days,"
        f" {number(outlook.later)} later. {number(outlook.never)} never do. Times are in UTC."
    )
    return section(
        "expiry",
        "Expiry",
        el("p", sentence, class_="soft"),
        el(
            "div",
            el("div", el("h3", f"The next {len(hours)} hours"), columns(hours, "Expiry by hours", short)),
            el("div", el("h3", f"The next {len(days)} days"), columns(days, "Expiry by days", short)),
            class_="pair",
        ),
    )


def sizes(found: Findings) -> Markup:
    """Show how large messages are."""
    totals = found.totals
    if not totals.messages:
        return section("sizes", "Sizes", el("p", "Nothing is retained."))
    known = {part.key: part for part in found.sizes}
    steps = []
    for key in range(min(known), max(known) + 1):
        part = known.get(key, Part(key, 0, 0))
        limit = "up to 1 byte" if key == 0 else f"more than {size(2 ** (key - 1))}, up to {size(2**key)}"
        told = f"{limit}\n{number(part.messages)} messages, {size(part.bytes)} ({share(part.bytes, totals.bytes)})"
        steps.append((key, told, part))
    by_messages = [Step(_power(key), told, (part.messages,)) for key, told, part in steps]
    by_bytes = [Step(_power(key), told, (part.bytes,)) for key, told, part in steps]
    sentence = (
        f"A payload has {size(totals.bytes / totals.messages)} on average, and {size(totals.largest)} at most. The"
        " label of a column is the largest size in it."
    )
    return section(
        "sizes",
        "Sizes",
        el("p", sentence, class_="soft"),
        el(
            "div",
            el("div", el("h3", "Messages"), columns(by_messages, "Messages by size", short)),
            el("div", el("h3", "Bytes"), columns(by_bytes, "Bytes by size", size, thousand=1024)),
            class_="pair",
        ),
        el("h3", "Largest messages"),
        _ones(found.largest, found.taken_at),
    )


def ranking(rows: Sequence[Talker], whole: int, hue: int = 0) -> Markup:
    """Show who has the most."""
    if not rows:
        return el("p", "None.", class_="soft")
    most = max(row.messages for row in rows) or 1
    return bars(
        (
            Bar(
                name(row.name),
                f"{number(row.messages)} ({share(row.messages, whole)}), {size(row.bytes)}",
                row.messages / most,
            )
            for row in rows
        ),
        hue,
    )  # fmt: skip


def _ones(rows: Iterable[One], taken_at: int) -> Markup:
    cells: list[Sequence[Content]] = [
        (name(one.topic), size(one.bytes), span(max(0, taken_at - one.at) // 1000), moment(one.at), name(one.client_id))
        for one in rows
    ]
    return table(("topic", "payload", "age", "stored", "publisher"), cells, "Messages")


def _untouched(found: Findings) -> Markup:
    history = found.history
    if history is None:
        sentence = "Which topics have never been updated is not known: there is no history."
        return el("p", sentence, class_="note")
    sentence = (
        f"{number(history.untouched)} of {number(history.retained)} topics"
        f" ({share(history.untouched, history.retained)}) have been stored once and not been updated in the"
        f" {span((history.until - history.since) / 1000)} since {moment(history.since)}"
    )
    if not history.untouched_topics:
        return el("p", sentence + ".", class_="note")
    listed = [[Markup(", ") if place else None, name(one, 60)] for place, one in enumerate(history.untouched_topics)]
    return el("p", sentence, ", for example: ", listed, class_="note")


def _first_levels(found: Findings) -> tuple[Talker, ...]:
    first: list[Branch] = [one for one in found.branches if one.depth == 1]
    first.sort(key=lambda one: (-one.messages, one.prefix))
    return tuple(Talker(one.prefix, one.messages, one.bytes) for one in first[: len(found.clients) or 1])


def _filled(parts: Iterable[Part], bands: Sequence[tuple[int, str]]) -> list[tuple[Part, tuple[int, str]]]:
    known = {part.key: part for part in parts}
    return [(known.get(place, Part(place, 0, 0)), band) for place, band in enumerate(bands)]


def _legend(*names: str) -> Markup:
    return el("p", [el("span", one, class_=f"key s{place}") for place, one in enumerate(names)], class_="legend")


def _day_or_hour(at: int, step: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):{'%d %b' if step >= 14_400 else '%d %b %H:%M'}}"


def _power(key: int) -> str:
    return size(2**key).replace(".0 ", " ").replace(" bytes", " B")


def measure(found: Findings) -> list[tuple[str, str]]:
    """Return the figures that come first, with what they are."""
    totals, history = found.totals, found.history
    said: list[tuple[str, str]] = [
        (number(totals.messages), "retained messages"),
        (size(totals.bytes), "of payload"),
        (number(totals.clients), "publishers"),
        (span(totals.median_age), "median age"),
        (share(totals.expiring, totals.messages), "expire"),
        (share(totals.stale, totals.messages), f"older than {span(found.stale_after)}"),
    ]
    if history is not None:
        hours = max(1 / 60, (history.until - history.since) / 3_600_000)
        said.append((short(history.changes / hours), "changes an hour"))
    if found.deliveries is not None:
        said.append((short(found.deliveries.messages), "messages if all subscribe at once"))
    return said


SECTIONS: tuple[Callable[[Findings], Markup], ...] = (topics, talkers, churn, staleness, expiry, sizes)
