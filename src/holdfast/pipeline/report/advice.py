"""What of flow control to change, by what was found: no number here is a rule of thumb that the figures do not need.

Pure. Each piece of advice says what it is about, what to set, and what that brings.
"""

from __future__ import annotations

import math

from attrs import evolve, frozen

from holdfast.pipeline.filters.deliveries import Deliveries, Delivery
from holdfast.pipeline.filters.replay_cost import reads, seconds_at
from holdfast.pipeline.filters.requested_filters import Replayed
from holdfast.pipeline.formatting import number, share, size, span, visible
from holdfast.pipeline.report.findings import Findings
from holdfast.rates import Rate
from holdfast.retained.replay.flow_settings import FlowSettings

#: All Subscriptions made at once should be served within so many seconds, and need no rate below so many bytes.
_SPREAD = 300
_HARMLESS = 64 << 20
#: No rate above this is advised: there is nothing left to hold back.
_FASTEST = 50_000
#: One Client that takes this part of all that is replayed is worth a rate of its own.
_LION = 0.2
#: Memory that replays may hold together, and one read may.
_MEMORY = 256 << 20
_READ = 8 << 20
#: Reads of one replay that are worth making fewer.
_MANY_READS = 200
_MOST_READ = 100_000
#: The part of all that is replayed, or retained, that is worth a word.
_MUCH = 0.2


@frozen
class Advice:
    """Why, what to set (a table and a line of the configuration), and what that brings."""

    title: str
    why: str
    table: str
    setting: str
    brings: str


def advice(found: Findings) -> list[Advice]:
    """Return what to change, the most important first; nothing where all is well."""
    given = []
    deliveries = found.deliveries
    if deliveries is not None and deliveries.messages:
        costliest = max(deliveries.deliveries, key=lambda one: (one.messages, one.bytes))
        rate = found.flow.delivery_rate or _spread(deliveries)
        given = [
            _everything(deliveries),
            _delivery_rate(deliveries, found.flow),
            _client_rate(deliveries, costliest, found.flow, rate),
            _concurrent(deliveries, found.flow),
            _batches(costliest, found.flow),
        ]
    return [one for one in [*given, _expiry(found)] if one is not None]


def _everything(found: Deliveries) -> Advice | None:
    """Advise against Subscriptions to everything."""
    wild = [one for one in found.deliveries if one.messages and one.topic_filter[:1] in ("+", "#")]
    messages = sum(one.messages * one.subscriptions for one in wild)
    if messages < _MUCH * found.messages:
        return None
    worst = max(wild, key=lambda one: one.messages * one.subscriptions)
    subscriptions = sum(one.subscriptions for one in wild)
    return Advice(
        "Subscriptions that begin with a wildcard",
        f"{number(subscriptions)} of {number(_replayed(found))} subscriptions begin with + or #, and take"
        f" {share(messages, found.messages)} of all that is replayed; {_called(worst)} alone takes"
        f" {number(worst.messages * worst.subscriptions)} messages.",
        "[zones.NAME.mqtt]",
        "min_replay_levels = 1",
        f"In a zone with it they still get live messages, and no retained ones: {number(messages)} messages fewer.",
    )


def _delivery_rate(found: Deliveries, flow: FlowSettings) -> Advice | None:
    """Advise a rate where there is none and much to send, or where the rate there is takes very long."""
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
            f"{all_at_once}, as fast as the clients take them.",
            "[retainer]",
            f'delivery_rate = "{proposed.amount}/s"',
            f"It takes them {span(seconds_at(proposed, found.messages) or 0)}, at no more than"
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
        f"It takes them {span(seconds_at(proposed, found.messages) or 0)}, at no more than"
        f" {size(proposed.amount * mean)} of payload a second.",
    )


def _client_rate(found: Deliveries, costliest: Delivery, flow: FlowSettings, rate: Rate) -> Advice | None:
    """Advise a rate of each client where one subscription takes much of what there is."""
    needs_none = flow.delivery_rate is None and found.bytes < _HARMLESS
    if flow.client_rate is not None or needs_none or costliest.messages < _LION * rate.per_second * _SPREAD:
        return None
    proposed = Rate(max(1, _rounded(rate.per_second / 10)), 1.0)
    lasts = seconds_at(proposed, costliest.messages) or 0
    return Advice(
        "One client that takes the most",
        f"A subscription to {_called(costliest)} is sent {number(costliest.messages)} messages:"
        f" {span(costliest.messages / rate.per_second)} of all that {number(rate.per_second)} messages a second allow.",
        "[retainer.flow_control]",
        f'client_rate = "{proposed.amount}/s"',
        f"Nine tenths of the rate are left for others; that replay lasts {span(lasts)} or longer.",
    )


def _concurrent(found: Deliveries, flow: FlowSettings) -> Advice | None:
    """Advise a limit where replays may hold too much memory together."""
    subscriptions = _replayed(found)
    held = [
        (min(flow.max_batch_bytes, flow.batch_read_number * one.bytes / one.messages, one.bytes), one.subscriptions)
        for one in found.deliveries
        if one.messages
    ]
    together = sum(each * count for each, count in held)
    largest = max(each for each, _ in held)
    if flow.max_concurrent_replays is not None or together <= _MEMORY or not largest:
        return None
    proposed = max(1, int(_MEMORY / largest))
    if proposed >= subscriptions:
        return None
    return Advice(
        "Memory of replays that run at once",
        f"A replay holds what it has read at once, {size(largest)} of payload at most here. All {number(subscriptions)}"
        f" at once may hold {size(together)}.",
        "[retainer]",
        f"max_concurrent_replays = {proposed}",
        f"They hold at most {size(proposed * largest)}; the others wait, and get live messages meanwhile.",
    )


def _batches(costliest: Delivery, flow: FlowSettings) -> Advice | None:
    """Advise larger reads where one replay takes very many."""
    now = reads(flow, costliest.messages, costliest.bytes)
    if now < _MANY_READS:
        return None
    mean = costliest.bytes / costliest.messages
    by_bytes = mean * flow.batch_read_number > flow.max_batch_bytes
    if by_bytes:
        wanted = min(_READ, 1 << math.ceil(math.log2(mean * flow.batch_read_number)))
        other = evolve(flow, max_batch_bytes=wanted)
        setting = f'max_batch_bytes = "{wanted >> 20}MB"'
        limit = f"max_batch_bytes ({size(flow.max_batch_bytes)}: some {number(flow.max_batch_bytes / mean)} messages)"
    else:
        most = min(_MOST_READ, int(flow.max_batch_bytes / mean) if mean else _MOST_READ)
        wanted = _rounded(max(1, most))
        other = evolve(flow, batch_read_number=wanted)
        setting = f"batch_read_number = {wanted}"
        limit = f"batch_read_number ({number(flow.batch_read_number)})"
    then = reads(other, costliest.messages, costliest.bytes)
    if then > now * 0.7:
        return None
    held = min(other.max_batch_bytes, other.batch_read_number * mean)
    return Advice(
        "Many small reads",
        f"A replay of {_called(costliest)} reads the database at least {number(now)} times. A message has"
        f" {size(mean)} on average, and a read ends at {limit}.",
        "[retainer.flow_control]",
        setting,
        f"{number(then)} reads instead of {number(now)}; such a replay then holds {size(held)} at once.",
    )


def _expiry(found: Findings) -> Advice | None:
    """Advise an expiry where much is old and stays for ever."""
    totals = found.totals
    if not totals.messages or totals.lasting < _MUCH * totals.messages:
        return None
    return Advice(
        "Messages that nobody updates, and that never expire",
        f"{number(totals.lasting)} messages ({share(totals.lasting, totals.messages)}, {size(totals.lasting_bytes)})"
        f" are older than {span(found.stale_after)} and have no expiry. Every replay carries them along.",
        "[retainer]",
        f'msg_expiry_interval = "{max(1, round(found.stale_after / 86_400)) * 3}d"',
        "What is retained from then on expires unless its publisher says otherwise or updates it;"
        " msg_expiry_interval_override reaches what is retained already.",
    )


def _spread(found: Deliveries) -> Rate:
    return Rate(min(_FASTEST, max(100, _rounded(found.messages / _SPREAD))), 1.0)


def _rounded(value: float) -> int:
    """Return a number with two digits and zeros, not below the value."""
    whole = math.ceil(value)
    unit: int = 10 ** max(0, len(str(whole)) - 2)
    return -(-whole // unit) * unit


def _replayed(found: Deliveries) -> int:
    return sum(one.subscriptions for one in found.deliveries if one.replayed is Replayed.YES)


def _called(one: Delivery) -> str:
    return f"“{visible(one.topic_filter, 60)}”"
