"""The summary: one row for each goal, with the figures of Holdfast and of the peer that the goal names.

A goal is a ratio to a peer in the same run, or a figure that must be reached without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.makes import PLAIN, TLS, WEBSOCKET
from benchmarks.report import Column, Figures, column, markdown_line, number, ratio
from benchmarks.results import MAX, P50, P99, P999, RATE, Metric
from benchmarks.scenarios import (
    Scale,
    connects,
    fanin,
    fanout,
    fleet,
    live,
    memory,
    mixed,
    payloads,
    permissions,
    pingpong,
    replay,
    retained,
    seed,
    since,
)
from benchmarks.scenarios import start as starts

_HEADINGS = (
    "",
    "Holdfast",
    "peer's best",
    "ratio",
    "goal",
    "",
    "µs a message + generator",
    "peer's",
    "their ratio",
)
_FLASHMQ = "flashmq"
_PAYLOAD_GOALS = {(payloads.REPLAY, 300): 2.0, (payloads.REPLAY, 1_000): 2.0, (payloads.REPLAY, 10_000): 1.2}
_FLEET_METRICS = (
    ("processor time", fleet.COST),
    ("p99", P99),
    ("p99.9", P999),
    ("memory", fleet.MEMORY),
    ("processor time in the storm", fleet.STORM_COST),
    ("ping p99 in the storm", fleet.STORM_PING),
    ("resumed in the storm", fleet.RESUMED),
)
_FLEET_GOALS = {
    (fleet.name(fleet.MANY, PLAIN), fleet.COST): 0.7,
    (fleet.name(fleet.MANY, TLS), fleet.COST): 0.8,
    (fleet.name(fleet.MANY, WEBSOCKET), fleet.COST): 1.0,
}
_FLEET_MEMORY = {fleet.name(fleet.MANY, PLAIN): 5.0, fleet.name(fleet.MANY, TLS): 25.0}


@dataclass(frozen=True)
class Goal:
    """One row. ``least`` is the ratio to the peer, or the figure itself if ``absolute``; None if there is no goal."""

    title: str
    scenario: str
    case: str
    metric: Metric
    least: float | None = None
    absolute: bool = False
    peer: str = "mosquitto"

    def is_met(self, own: Column, other: Column) -> bool | None:
        """Whether the goal is reached; None if that is not known."""
        if self.least is None or own.median is None:
            return None
        if self.absolute:
            return own.median >= self.least if self.metric.higher_is_better else own.median <= self.least
        found = ratio(self.metric, own, other)
        return None if found is None else found >= self.least

    @property
    def text(self) -> str:
        """The goal as a reader sees it."""
        if self.least is None:
            return ""
        if not self.absolute:
            return f"{self.least:g}x"
        return f"{'≥' if self.metric.higher_is_better else '≤'} {number(self.least)} {self.metric.unit}"


def goals(scale: Scale, postgres: bool) -> list[Goal]:
    """Return the rows of the summary for the sizes of a run."""
    count = scale.retained[-1]
    found = [
        Goal("fan-in 10 to 1, QoS 0", "fanin", fanin.name(0), RATE, 4),
        Goal("fan-in 10 to 1, QoS 1", "fanin", fanin.name(1), RATE, 3),
        Goal("fan-in, 2000 topics each", "fanin", fanin.MANY_TOPICS, RATE),
        Goal("fan-in, small writes", "fanin", fanin.SMALL_WRITES, RATE),
        Goal("500 publishers, one under way each, QoS 0", "fanin", fanin.crowd(0), RATE),
        Goal("500 publishers, one under way each, QoS 1", "fanin", fanin.crowd(1), RATE),
        *(
            Goal(f"fleet: {case}, {title}", "fleet", case, metric, _FLEET_GOALS.get((case, metric)))
            for case in (fleet.name(size, transport) for size, transport in fleet.CASES)
            for title, metric in _FLEET_METRICS
        ),
        *(
            Goal(f"fleet: {case}, memory of an idle connection", "fleet", case, fleet.EACH, most, absolute=True)
            for case, most in _FLEET_MEMORY.items()
        ),
        Goal("fan-out 1 to 100, QoS 0", "fanout", fanout.name(0), RATE, 10),
        Goal("fan-out 1 to 100, QoS 1", "fanout", fanout.name(1), RATE, 5),
        Goal("fan-out, one under way", "fanout", fanout.ONE, RATE, 1),
        Goal("ping-pong", "pingpong", pingpong.NAME, RATE, 1),
        Goal("ping-pong, p50", "pingpong", pingpong.NAME, P50, 0.15, absolute=True),
        Goal("ping-pong, p99", "pingpong", pingpong.NAME, P99, 0.5, absolute=True),
        Goal("mixed MQTT 3.1.1 and 5.0", "mixed", mixed.NAME, RATE),
        Goal("fan-in, 10 % retained, QoS 0", "retained", retained.name(0), RATE),
        Goal("fan-in, 10 % retained, QoS 1", "retained", retained.name(1), RATE),
        *(
            Goal(
                payloads.name(kind, size), "payloads", payloads.name(kind, size), RATE, _PAYLOAD_GOALS.get((kind, size))
            )
            for kind in (payloads.WRITES, payloads.REPLAY, payloads.FANOUT)
            for size in payloads.SIZES
        ),
        Goal(f"replay of {count:,}, QoS 0", "replay", replay.name(count, 0), RATE, 2 if postgres else 4),
        Goal(f"replay of {count:,}, QoS 1", "replay", replay.name(count, 1), RATE, 1 if postgres else 3),
        Goal("first retained message", "replay", replay.name(count, 0), replay.FIRST, 5, absolute=True),
        Goal(
            f"replay of {since.name(count)}",
            "since",
            since.name(count),
            since.LAST,
            30 if postgres else 10,
            absolute=True,
        ),
        Goal("live p99, nothing else", "live", live.name(count, 0), P99),
        Goal("live p99 during 1 replay", "live", live.name(count, 1), P99, 2, absolute=True),
        Goal("live p99 during 4 replays", "live", live.name(count, 4), P99, 3.5, absolute=True),
    ]
    for window in seed.WINDOWS:
        title, case = f"durable retained publishes, window {window:,}", seed.name(window)
        if not postgres:
            found.append(Goal(title, "seed", case, RATE, 0.9 if window > 1 else None, peer=seed.BARE))
        found.append(Goal(f"{title} (peer: from memory)", "seed", case, RATE))
    found += [
        Goal(
            f"burst of {scale.connects:,} connects", "connects", connects.NAME, connects.CONNECTS, 8000, absolute=True
        ),
        Goal("the worst wait in the burst", "connects", connects.NAME, MAX),
        Goal("memory of an idle connection", "connects", connects.NAME, connects.EACH, 8, absolute=True),
    ]
    found += [
        Goal(f"permissions: {case}", "permissions", case, permissions.COST, 105 if is_goal else None, absolute=True)
        for case, is_goal in permissions.cases()
    ]
    found += [
        Goal(f"start with {number:,} retained", "start", starts.after_stop(number), starts.CONNACK, 600, absolute=True)
        for number in (0, *scale.retained)
    ]
    found += [
        Goal(f"memory with {count:,} retained", "memory", memory.idle(count), memory.MEMORY, 80, absolute=True),
        Goal("memory of a stalled reader of #", "memory", memory.stalled(50), memory.EACH, 0.25, absolute=True),
    ]
    return found


def summary(figures: Figures, rows: Sequence[Goal], flashmq: bool) -> Iterator[list[str]]:
    """Yield the headings and the cells of each goal that was measured."""
    yield [*_HEADINGS, *(["FlashMQ"] if flashmq else [])]
    for goal in rows:
        found = figures.get((goal.scenario, goal.case, goal.metric))
        if found is None:
            continue
        own, other = (column(goal.metric, found, make) for make in ("holdfast", goal.peer))
        told, met = ratio(goal.metric, own, other), goal.is_met(own, other)
        peer = f"{other} {_which(other)}".strip() if other.rows else ""
        cells = [f"{goal.title}, {goal.metric.unit}", str(own), peer, "" if told is None else f"{told:.2f}", goal.text]
        cells += [
            "" if met is None else "met" if met else "missed",
            _processor(own),
            _processor(other),
            _processor_ratio(own, other),
        ]
        if flashmq:
            cells.append(str(column(goal.metric, found, _FLASHMQ)))
        yield cells


def _which(one: Column) -> str:
    _, _, option = one.configuration.partition("-")
    return f"[{option or 'default'}]" if one.configuration.startswith("mosquitto") else f"[{one.configuration}]"


def _processor(one: Column) -> str:
    if one.processor is None:
        return ""
    told = f"{number(one.processor.broker)} + {number(one.processor.generator)}"
    return told + (" LIMIT" if one.processor.limited else "")


def _processor_ratio(own: Column, other: Column) -> str:
    """The ratio of the brokers' processor times. Other work of the machine hardly changes it."""
    if own.processor is None or other.processor is None or not own.processor.broker > 0:
        return ""
    return f"{other.processor.broker / own.processor.broker:.2f}"


def terminal(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with columns of equal width."""
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def markdown(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield markdown_line(table[0])
    yield "|" + "---|" * len(table[0])
    yield from map(markdown_line, table[1:])
