"""Builds what all rooms of the broker use: the database, the audit log, the counts of connections, jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.jobs import Jobs
from holdfast.broker.audit import compose_audit, end_of_jobs_of
from holdfast.broker.cluster import alone, member_of
from holdfast.config import Config
from holdfast.core.connection_limits import ProcessConnections
from holdfast.scheduling.deadlines import BrokerClock
from holdfast.sessions.connection.pressure import Pressure
from holdfast.storage.database import Durability
from holdfast.storage.sqlite import OnCorruption
from holdfast.storage.store import DurableStore
from holdfast.watch.audit import Audit, OverheardAudit

if TYPE_CHECKING:
    from holdfast.cluster.membership import Membership

T = TypeVar("T")


#: Seconds that a replay waits for an unavailable database where ``when_unavailable`` is ``refuse``.
READ_PATIENCE = 5.0


def read_patience(config: Config) -> float | None:
    """Return the seconds for which reads wait for a database that is away; None: without end."""
    return READ_PATIENCE if config.retainer.when_unavailable == "refuse" else None


@frozen(kw_only=True)
class Base:
    """The parts that all rooms use.

    ``now`` returns milliseconds since the epoch: that of the ``clock``, which follows the machine's; without it,
    nothing follows. The ``membership`` is None for a broker without ``[cluster]``. The ``environment`` may name the
    service manager, and have secrets that the configuration names.
    """

    reactor: Any
    now: Callable[[], int]
    environment: Mapping[str, str]
    clock: BrokerClock | None
    durable: DurableStore
    pressure: Pressure
    process: ProcessConnections
    audit: Audit
    overheard: OverheardAudit
    jobs: Jobs
    membership: Membership | None = None

    def in_thread(self, function: Callable[..., T], *args: object) -> Deferred[T]:
        """Run a function in a thread of the reactor's pool."""
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function, *args)


def build(
    config: Config,
    *,
    reactor: Any,
    now: Callable[[], int],
    environment: Mapping[str, str],
    clock: BrokerClock | None,
    open_files: int | None,
) -> Base:
    """Build the parts. ``open_files`` limits the files and connections of the process; None is no limit."""
    pressure = Pressure(reactor)
    membership = member_of(config, reactor) if config.cluster.name else None
    durable = DurableStore(
        config.storage.url,
        durability=Durability(config.storage.durability),
        flush_interval=config.storage.flush_interval,
        node=config.node.id,
        reactor=reactor,
        now=now,
        on_pressure=pressure.change,
        patience=read_patience(config),
        upgrade_command=config.upgrade_command,
        on_corruption=OnCorruption(config.storage.on_corruption),
        join=alone if membership is None else membership.join,
        on_superseded=None if membership is None else membership.supersede,
    )
    audit = compose_audit(config, clock=reactor, now=now)
    return Base(
        reactor=reactor, now=now, environment=environment, clock=clock, durable=durable, pressure=pressure,
        process=ProcessConnections() if open_files is None else ProcessConnections.within(open_files),
        audit=audit, overheard=OverheardAudit(audit), jobs=Jobs(now, end_of_jobs_of(audit)), membership=membership,
    )  # fmt: skip
