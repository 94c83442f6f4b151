"""The parts of the page about time: how old what is retained is, and when it expires. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from holdfast.pipeline.formatting import moment, number, share, short, size, span
from holdfast.pipeline.report.charts import Step, columns
from holdfast.pipeline.report.findings import AGE_BANDS, Findings, Part
from holdfast.pipeline.report.markup import Markup, el, name
from holdfast.pipeline.report.parts import messages, section, table


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
        messages(found.oldest, found.taken_at),
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


def _filled(parts: Iterable[Part], bands: Sequence[tuple[int, str]]) -> list[tuple[Part, tuple[int, str]]]:
    known = {part.key: part for part in parts}
    return [(known.get(place, Part(place, 0, 0)), band) for place, band in enumerate(bands)]
