"""A broker in memory around a real database, with what watches it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import maybeDeferred

from holdfast.broker.cluster import Carriers, ClusterParts
from holdfast.broker.watch import compose_monitoring
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.cluster.fallback_bus import Way
from holdfast.config import Config, default
from holdfast.core.connection_limits import ProcessConnections
from holdfast.identity.bans import Bans, Exempt
from holdfast.watch.audit import Audit
from tests.sessions.restartable import RestartableBroker


@define
class Surroundings:
    """What the parts around the Sessions say; a test may change it."""

    connections: dict[str, int] = field(factory=lambda: {"tls": 3})
    closed_names: list[str] = field(factory=list)
    certificates: dict[str, float] = field(factory=dict)
    stopping: bool = False
    behind: float = 0.0  #: of the machine's clock, in seconds

    lease_left: float | None = None  #: seconds of this node's lease at its renewal
    offset: float | None = None  #: of the clocks of this machine and the database, in seconds

    def take_worst(self) -> float | None:
        left, self.lease_left = self.lease_left, None
        return left

    other_configurations: tuple[int, ...] = ()

    def left(self) -> float:
        return 4.0

    def open_connections(self) -> dict[str, int]:
        return self.connections

    def closed(self) -> list[str]:
        return self.closed_names

    def ends(self) -> dict[str, float]:
        return self.certificates


class Exchange:
    """The counts of an exchange with other members."""

    rows = SimpleNamespace(sent=7, received=6)
    runs = SimpleNamespace(sent=5)
    corrections = SimpleNamespace(sent=4)
    interest = SimpleNamespace(waits=3)
    moved = 8, 9, 10

    def __init__(self) -> None:
        self.lost = 2
        self.breaks = 1
        self.silent: frozenset[int] = frozenset()


def carriers() -> Carriers:
    """Return those of a member with NATS, which reaches node 2 over it."""
    made = Carriers(cast("Any", None), 1, None, cast("Any", object()))
    made.fallback = cast(
        "Any",
        SimpleNamespace(ways={2: Way.FIRST}, fallbacks=8, with_another_sign=frozenset()),
    )
    made.nats = cast("Any", SimpleNamespace(is_connected=True, losses=9, refused={"unknown": 10, "repeated": 0}))
    return made


class WatchedBroker(RestartableBroker):
    """The broker, and ``monitoring``, which does not run before :meth:`watch`."""

    def __init__(self, folder: Path, config: Config | None = None, **options: Any) -> None:
        super().__init__(folder / "holdfast.db", **options)
        self.around = Surroundings()
        config = config or default(folder).override([], str(folder), None, allow_anonymous=True, cwd=folder)
        self.audit = Audit((), clock=self.clock, now=self.now)
        self.history = RetainedHistory(
            self.durable, flushed=self.store.flushed, clock=self.clock, now=self.now, limits=HistoryLimits()
        )
        self.process = ProcessConnections()
        self.exchange = Exchange()
        self.carriers = carriers()
        self.cluster = ClusterParts(cast("Any", self.around), cast("Any", self.exchange), self.carriers)
        self.monitoring = compose_monitoring(
            config, reactor=self.clock, now=self.now, durable=self.durable, retained=self.retained,
            replays=self.replays, history=self.history, telemetry=self.telemetry, sessions=self.session_parts,
            pressure=self.pressure, process=self.process, listeners=cast("Any", self.around),
            tls=cast("Any", self.around),
            bans=Bans(now=lambda: self.now() / 1000, exempt=Exempt()), audit=self.audit,
            is_stopping=lambda: self.around.stopping, run=maybeDeferred,
            wall=lambda: self.now() / 1000 - self.around.behind, cluster=self.cluster,
        )  # fmt: skip

    def storage(self) -> Mapping[str, object]:
        """Return the figures of the database."""
        return self.durable.status()

    def watch(self) -> None:
        """Begin to watch."""
        self.monitoring.services.startService()
        self.settle()

    def close(self) -> None:
        """Stop watching, and close the database."""
        if self.monitoring.services.running:
            self.monitoring.services.stopService()
        self.durable.close()
        self.settle()
