"""The parts of the page about what is retained: how much in all, where, and how large. Pure."""

from __future__ import annotations

from holdfast.pipeline.formatting import number, rough, share, short, size, span
from holdfast.pipeline.report.changes import pace
from holdfast.pipeline.report.charts import Step, columns
from holdfast.pipeline.report.findings import Findings, Part
from holdfast.pipeline.report.icicle import icicle, tiles
from holdfast.pipeline.report.markup import Markup, el, name
from holdfast.pipeline.report.parts import messages, section, table

_TABLED = 20


def measure(found: Findings) -> list[tuple[str, str]]:
    """Return the figures that come first, with what they are."""
    totals, history = found.totals, found.history
    said: list[tuple[str, str]] = [
        (number(totals.messages), "retained messages"),
        (size(totals.bytes), "of payload"),
        (number(totals.clients), "publishers"),
        (rough(totals.median_age), "median age"),
        (share(totals.expiring, totals.messages), "expire"),
        (share(totals.stale, totals.messages), f"older than {span(found.stale_after)}"),
    ]
    if history is not None:
        said.append(pace(history))
    if found.deliveries is not None:
        said.append((short(found.deliveries.messages), "messages if all subscribe at once"))
    return said


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
        messages(found.largest, found.taken_at),
    )


def _power(key: int) -> str:
    return size(2**key).replace(".0 ", " ").replace(" bytes", " B")
