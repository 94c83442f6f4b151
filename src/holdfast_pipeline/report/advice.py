"""The findings of the page, with advice on flow control and expiry. Pure.

Each piece of advice has a reason, a setting and an effect, all with figures. An example: 50 subscriptions to ``a/#``
together receive 5,000,000 messages. To spread them over 300 seconds takes ``delivery_rate = "17000/s"``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import evolve, frozen

from holdfast.core.units import Rate
from holdfast.retained.api import FlowSettings
from holdfast_pipeline.checks.discovered import findings_in
from holdfast_pipeline.checks.finding import Finding, worst_first
from holdfast_pipeline.filters import FilterDeliveries, FilterDelivery, reads, seconds_at
from holdfast_pipeline.formatting import number, share, size, span, visible
from holdfast_pipeline.report.figures import Figures

#: The seconds over which replays of all subscriptions are spread. Fewer bytes than ``_HARMLESS`` need no rate.
_SPREAD = 300
_HARMLESS = 64 << 20
#: No higher rate is advised: the broker hardly reaches a higher rate, so it would limit nothing.
_FASTEST = 50_000
#: One replay with this share of the messages that the rate allows in ``_SPREAD`` justifies a rate for each client.
_LARGE_SHARE = 0.2
#: From this number of batches on, a replay should have larger ones; ``_MOST_READ`` is the largest setting.
_MANY_READS = 200
_MOST_READ = 100_000
#: The share of all replayed, or of all retained, messages that justifies advice.
_MUCH = 0.2


@frozen
class Advice:
    """A title, the reason, the setting (a table and a line of the configuration), and its effect."""

    title: str
    why: str
    table: str
    setting: str
    brings: str


def advice(found: Figures) -> list[Advice]:
    """Return the advice, the most important first; none if the present settings are enough."""
    given = []
    deliveries = found.deliveries
    if deliveries is not None and deliveries.messages:
        costliest = max(deliveries.deliveries, key=lambda one: (one.messages, one.bytes))
        rate = found.flow.delivery_rate or _spread(deliveries)
        given = [
            _leading_wildcards(deliveries),
            _delivery_rate(deliveries, found.flow),
            _client_rate(deliveries, costliest, found.flow, rate),
            _batches(costliest, found.flow),
        ]
    return [one for one in [*given, _expiry(found)] if one is not None]


def _leading_wildcards(found: FilterDeliveries) -> Advice | None:
    """Advise against subscriptions that begin with a wildcard."""
    wild = [one for one in found.deliveries if one.messages and one.topic_filter[:1] in ("+", "#")]
    messages = sum(one.messages_together for one in wild)
    if messages < _MUCH * found.messages:
        return None
    worst = max(wild, key=lambda one: one.messages_together)
    subscriptions = sum(one.subscriptions for one in wild)
    return Advice(
        "Subscriptions that begin with a wildcard",
        f"{number(subscriptions)} of {number(_replayed(found))} subscriptions begin with + or #. They take"
        f" {share(messages, found.messages)} of all replayed messages; {_called(worst)} alone takes"
        f" {number(worst.messages_together)} messages.",
        "[zones.NAME.mqtt]",
        "min_replay_levels = 1",
        f"In a zone with this setting they get live messages and no replay: {number(messages)} messages fewer.",
    )


def _delivery_rate(found: FilterDeliveries, flow: FlowSettings) -> Advice | None:
    """Advise a rate if none limits many replays, or a higher rate if replays take very long."""
    proposed = _spread(found)
    mean = found.bytes / found.messages
    all_at_once = (
        f"If all {number(_replayed(found))} subscriptions were made at once, after an outage for example,"
        f" {number(found.messages)} messages, {size(found.bytes)}, would be due"
    )
    if flow.delivery_rate is None:
        if found.bytes < _HARMLESS:
            return None
        return Advice(
            "All replays at once",
            f"{all_at_once}, as fast as the clients read.",
            "[retainer]",
            f'delivery_rate = "{proposed.amount}/s"',
            f"Together they take {span(seconds_at(proposed, found.messages) or 0)}, with at most"
            f" {size(proposed.amount * mean)} of payload a second.",
        )
    now = seconds_at(flow.delivery_rate, found.messages) or 0
    if now <= 2 * _SPREAD or proposed.per_second < 2 * flow.delivery_rate.per_second:
        return None
    return Advice(
        "A rate that makes replays wait",
        f"{all_at_once}: at {number(flow.delivery_rate.per_second)} messages a second for {span(now)}.",
        "[retainer]",
        f'delivery_rate = "{proposed.amount}/s"',
        f"Together they take {span(seconds_at(proposed, found.messages) or 0)}, with at most"
        f" {size(proposed.amount * mean)} of payload a second.",
    )


def _client_rate(found: FilterDeliveries, costliest: FilterDelivery, flow: FlowSettings, rate: Rate) -> Advice | None:
    """Advise a rate for each client where one replay takes a large share of the rate for all."""
    needs_none = flow.delivery_rate is None and found.bytes < _HARMLESS
    if flow.client_rate is not None or needs_none or costliest.messages < _LARGE_SHARE * rate.per_second * _SPREAD:
        return None
    proposed = Rate(max(1, _rounded(rate.per_second / 10)), 1.0)
    lasts = seconds_at(proposed, costliest.messages) or 0
    return Advice(
        "One replay that takes the most",
        f"A subscription to {_called(costliest)} receives {number(costliest.messages)} messages: at"
        f" {number(rate.per_second)} messages a second for all clients, it takes the whole rate for"
        f" {span(costliest.messages / rate.per_second)}.",
        "[retainer.flow_control]",
        f'client_rate = "{proposed.amount}/s"',
        f"Nine tenths of the rate are left for other clients; this replay lasts {span(lasts)} or longer.",
    )


def _batches(costliest: FilterDelivery, flow: FlowSettings) -> Advice | None:
    """Advise larger batches where one replay reads very many."""
    now = reads(flow, costliest.messages, costliest.bytes)
    if now < _MANY_READS:
        return None
    mean = costliest.bytes / costliest.messages
    most = min(_MOST_READ, int(flow.max_batch_bytes / mean) if mean else _MOST_READ)
    wanted = _rounded(max(1, most))
    other = evolve(flow, batch_read_number=wanted)
    then = reads(other, costliest.messages, costliest.bytes)
    if then > now * 0.7:
        return None
    held = min(other.max_batch_bytes, other.batch_read_number * mean)
    return Advice(
        "Many small reads",
        f"A replay of {_called(costliest)} reads the database at least {number(now)} times. A message has"
        f" {size(mean)} on average, and a read ends at batch_read_number ({number(flow.batch_read_number)}).",
        "[retainer.flow_control]",
        f"batch_read_number = {wanted}",
        f"{number(then)} reads instead of {number(now)}; such a replay then holds {size(held)} in memory.",
    )


def _expiry(found: Figures) -> Advice | None:
    """Advise an expiry where many messages are stale and never expire."""
    totals = found.totals
    if not totals.messages or totals.lasting < _MUCH * totals.messages:
        return None
    return Advice(
        "Stale messages that never expire",
        f"{number(totals.lasting)} messages ({share(totals.lasting, totals.messages)}, {size(totals.lasting_bytes)})"
        f" are older than {span(found.stale_after)} and have no expiry. Every replay includes them.",
        "[retainer]",
        f'msg_expiry_interval = "{max(1, round(found.stale_after / 86_400)) * 3}d"',
        "New messages without an expiry of their own expire unless they are updated."
        " msg_expiry_interval_override also reaches the present messages.",
    )


def _spread(found: FilterDeliveries) -> Rate:
    return Rate(min(_FASTEST, max(100, _rounded(found.messages / _SPREAD))), 1.0)


def _rounded(value: float) -> int:
    """Round up to two digits and zeros: 16,667 becomes 17,000."""
    whole = math.ceil(value)
    unit: int = 10 ** max(0, len(str(whole)) - 2)
    return -(-whole // unit) * unit


def _replayed(found: FilterDeliveries) -> int:
    return sum(one.subscriptions for one in found.deliveries if one.is_replayed)


def _called(one: FilterDelivery) -> str:
    return f"“{visible(one.topic_filter, 60)}”"


# The findings of the page, each with its severity and its advice. Pure.
#
# A finding is about the data, as a shape with malformed payloads, or about the settings, as advice on flow control.


def findings(found: Figures) -> list[Finding]:
    """Return the findings, the worst first; of one severity, those about most messages first."""
    # The sort is stable: advice stays in its own order.
    return sorted([*findings_in(found.discovered), *_stale(found), *_settings(found)], key=worst_first)


def _stale(found: Figures) -> Iterator[Finding]:
    """Give the prefixes whose messages are all stale."""
    for one in found.stale:
        expiry = "none of them expires" if not one.expiring else f"{number(one.expiring)} of them expire"
        yield Finding(
            severity="warning",
            kind="stale prefix",
            subject=one.prefix,
            evidence=f"All {number(one.messages)} messages ({size(one.bytes)}) are stale, older than"
            f" {span(found.stale_after)}: the newest is {span(one.newest_age)} old, and {expiry}.",
            advice="If these devices are gone, clear their topics. If not, find out why they publish nothing.",
            weight=one.messages,
        )


def _settings(found: Figures) -> Iterator[Finding]:
    """Give the advice on settings."""
    for one in advice(found):
        yield Finding(
            severity="note",
            kind="setting",
            subject=one.title,
            evidence=one.why,
            advice=one.brings,
            setting=f"{one.table}\n{one.setting}",
        )
