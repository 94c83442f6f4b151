"""The figures of cycles: counts, waits, fencings; a line for each cycle, and a table in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field

from tests.cluster.bench.checks import lost_with_qos_0
from tests.cluster.bench.history import (
    Acknowledged,
    Connected,
    Delivered,
    Fault,
    History,
    NodeEnded,
    Published,
    Stillness,
    Violation,
)
from tests.cluster.bench.places import FENCED, GRACE, LEASE
from tests.cluster.bench.views import View

#: seconds behind the end of a fault in which a node may end for it
_AFTERWARDS = LEASE + GRACE + 4
#: of the cycles, how many may have an unplanned fencing
ALLOWED = 0.05


@define
class Figures:
    """What is told of one cycle, or of all. ``cycles_unplanned`` are those with unplanned fencings."""

    cycles: int = 0
    published: int = 0
    acknowledged: int = 0
    delivered: int = 0
    connected: int = 0
    due_0: int = 0
    lost_0: int = 0
    planned: int = 0
    unplanned: int = 0
    cycles_unplanned: int = 0
    take_over: float = 0.0
    silence: float = 0.0
    heal: float = 0.0
    errors: int = 0
    violations: list[Violation] = field(factory=list)

    def add(self, other: Figures) -> None:
        """Add the figures of a cycle."""
        for name in (
            "cycles", "published", "acknowledged", "delivered", "connected", "due_0", "lost_0", "planned", "unplanned",
            "cycles_unplanned", "errors",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("take_over", "silence", "heal"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.violations += other.violations

    @property
    def counts(self) -> bool:
        """Whether the machine was fast enough: few fencings without a fault."""
        return self.cycles_unplanned <= max(1, ALLOWED * self.cycles)

    def line(self) -> str:
        """Return one line."""
        return (
            f"published {self.published}, delivered {self.delivered}, violations {len(self.violations)}, fenced "
            f"{self.planned}+{self.unplanned}, take-over {self.take_over:.1f} s, silence {self.silence:.1f} s, healed "
            f"in {self.heal:.1f} s, QoS 0 lost {self.lost_0} of {self.due_0}, errors in logs {self.errors}"
        )

    def table(self) -> str:
        """Return the table of all cycles."""
        rows: Sequence[tuple[str, object]] = (
            ("cycles", self.cycles),
            ("messages published", self.published),
            ("acknowledged", self.acknowledged),
            ("delivered", self.delivered),
            ("of QoS 0, missed by connected subscribers", f"{self.lost_0} of {self.due_0}"),
            ("connections", self.connected),
            ("violations", len(self.violations)),
            ("fencings by faults", self.planned),
            ("fencings without a fault", f"{self.unplanned} in {self.cycles_unplanned} cycles"),
            ("worst take-over of a stored Session", f"{self.take_over:.2f} s"),
            ("worst silence of a client", f"{self.silence:.2f} s"),
            ("worst time until all is well", f"{self.heal:.2f} s"),
            ("errors in the logs of nodes", self.errors),
        )
        return "\n".join(f"| {name} | {value} |" for name, value in (("", ""), ("---", "---"), *rows))


def figures_of(history: History, view: View, violations: Iterable[Violation]) -> Figures:
    """Return the figures of a cycle."""
    due, lost = lost_with_qos_0(view)
    planned, unplanned = _fencings(history)
    healed, groups = history.phase("healed"), history.phase("groups")
    return Figures(
        cycles=1,
        published=sum(not event.again for event in history.of(Published)),
        acknowledged=sum(1 for _ in history.of(Acknowledged)),
        delivered=sum(1 for _ in history.of(Delivered)),
        connected=sum(1 for _ in history.of(Connected)),
        due_0=due,
        lost_0=lost,
        planned=planned,
        unplanned=unplanned,
        cycles_unplanned=int(unplanned > 0),
        take_over=_take_over(history),
        silence=max(
            (event.seconds if isinstance(event, Stillness) else event.waited
             for event in history.of(Stillness, Connected)),
            default=0.0,
        ),
        heal=0.0 if healed is None or groups is None else groups - healed,
        violations=list(violations),
    )  # fmt: skip


def _take_over(history: History) -> float:
    """Return the longest time that a client waited for its stored Session at another node."""
    at: dict[str, int] = {}
    worst = 0.0
    for event in history.of(Connected):
        if event.present and at.get(event.client, event.node) != event.node:
            worst = max(event.waited, worst)
        at[event.client] = event.node
    return worst


def _fencings(history: History) -> tuple[int, int]:
    faults: list[tuple[int, float, float]] = []
    begun: dict[str, Fault] = {}
    for event in history.of(Fault):
        if event.begins:
            begun[event.name] = event
        elif event.fences:
            faults.append((event.node, begun[event.name].at, event.at + _AFTERWARDS))
    ends = [event for event in history.of(NodeEnded) if event.status == FENCED]
    planned = sum(
        any(node in (0, end.node) and begin <= end.at <= until for node, begin, until in faults) for end in ends
    )
    return planned, len(ends) - planned


def crashes(history: History) -> list[Violation]:
    """Return the ends of nodes that no fault explains: with another status than a fenced node's, or that of kill -9."""
    return [
        Violation(0, f"node {event.node} ended with the status {event.status}")
        for event in history.of(NodeEnded)
        if event.status not in (FENCED, -9)
    ]
