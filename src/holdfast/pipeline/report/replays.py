"""The parts of the page about replays: the costliest Topic Filters, and what to change. Pure."""

from __future__ import annotations

from holdfast.pipeline.filters.requested import Replayed
from holdfast.pipeline.formatting import number, size, span
from holdfast.pipeline.jobs.filters import Deliveries
from holdfast.pipeline.report.advice import advice
from holdfast.pipeline.report.findings import Findings
from holdfast.pipeline.report.markup import Content, Markup, el, name, percent
from holdfast.pipeline.report.parts import section, table
from holdfast.rates import Rate

_LISTED = 15


def costliest(found: Findings) -> Markup:
    """Show what Topic Filters deliver."""
    deliveries = found.deliveries
    if deliveries is None or not deliveries.deliveries:
        return section(
            "filters", "Replays",
            el("p", "No Topic Filters are known: there are no Sessions with subscriptions in the database, and no"
               " file of Topic Filters was given (--filters)."),
        )  # fmt: skip
    ordered = sorted(deliveries.deliveries, key=lambda one: (-one.bytes * one.subscriptions, one.topic_filter))
    timed = () if ordered[0].seconds is None else ("at least",)
    most = max(1, ordered[0].bytes * ordered[0].subscriptions)
    rows: list[tuple[Content, ...]] = [
        (
            name(one.topic_filter), number(one.subscriptions), number(one.messages), size(one.bytes),
            number(one.reads), *(() if one.seconds is None else (span(one.seconds),)),
            el("svg", el("rect", width=percent(one.bytes * one.subscriptions / most), height="100%", rx=2),
               class_="bar s0", width="100%", height=8, aria_hidden="true"),
            size(one.bytes * one.subscriptions),
        )
        for one in ordered[:_LISTED]
    ]  # fmt: skip
    return section(
        "filters",
        "Replays",
        el("p", f"What a Subscription to each Topic Filter is sent, and all that have it together. {_settings(found)}",
           class_="soft"),
        table(("Topic Filter", "subscriptions", "messages", "bytes", "reads", *timed, "", "together"), rows,
              "Costliest Topic Filters"),
        el("p", _rest(deliveries), class_="note"),
    )  # fmt: skip


def advised(found: Findings) -> Markup:
    """Show what to change."""
    given = advice(found)
    if not given:
        return section("advice", "What to change", el("p", _nothing(found), class_="fine"))
    return section(
        "advice",
        "What to change",
        el(
            "ul",
            [el("li", el("h3", one.title), el("p", one.why), el("pre", one.table, el("br"), one.setting),
                el("p", one.brings)) for one in given],
            class_="advice",
        ),
    )  # fmt: skip


def _nothing(found: Findings) -> str:
    deliveries = found.deliveries
    if deliveries is None or not deliveries.messages:
        return "Nothing is known of subscriptions, so that there is nothing to say of flow control."
    return (
        f"Nothing: if all subscriptions were made at once, {number(deliveries.messages)} messages,"
        f" {size(deliveries.bytes)}, would be due, and the settings there are cope with that."
    )


def _settings(found: Findings) -> str:
    flow = found.flow
    return (
        f"Settings: batch_read_number {number(flow.batch_read_number)}, batch_deliver_number"
        f" {number(flow.batch_deliver_number)}, max_batch_bytes {size(flow.max_batch_bytes)}, delivery_rate"
        f" {_rate(flow.delivery_rate)}, client_rate {_rate(flow.client_rate)}, max_concurrent_replays"
        f" {flow.max_concurrent_replays or 'infinity'}."
    )


def _rate(rate: Rate | None) -> str:
    return "infinity" if rate is None else f"{number(rate.amount)} per {span(rate.seconds)}"


def _rest(found: Deliveries) -> str:
    none = sum(1 for one in found.deliveries if one.replayed is Replayed.YES and not one.messages)
    withheld = sum(1 for one in found.deliveries if one.replayed is not Replayed.YES)
    sentence = f"Topic Filters: {number(len(found.deliveries))}. Match nothing that is retained: {number(none)}"
    if withheld:
        sentence += f". Are sent nothing (shared, Retain Handling 2, or the broker's own): {number(withheld)}"
    if found.refused:
        sentence += f". Left out, as they are no Topic Filters: {number(len(found.refused))}"
    return sentence + "."
