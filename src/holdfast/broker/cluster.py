"""Builds the membership in a cluster, and joins it with the reactor and the Sessions.

Without ``[cluster]`` nothing of it is imported, and a Postgres database is for this broker alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime

from holdfast.broker.draining import MemberDraining
from holdfast.config import Config, ConfigError
from holdfast.config.differences import present_values
from holdfast.core.tickets import StorageFailure
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.leases import leases_of
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.draining import Draining
from holdfast.sessions.durable import will_of
from holdfast.sessions.registry import SessionRegistry
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore, OpenStore

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange
    from holdfast.cluster.members import HandedOver
    from holdfast.cluster.membership import Membership

Fence = Callable[[str], None]

#: seconds between two looks for clients that have come back to other nodes
RETURNS_INTERVAL = 2.0
#: the tables of the configuration that differ from node to node
_OWN = ("node", "listeners", "admin", "audit", "log", "alarms", "storage")


def alone(database: Database) -> Database:
    """Return the database of a broker without ``[cluster]``. A file has one broker anyway."""
    if not database.remote:
        return database
    from holdfast.storage.postgres import LonePostgres

    return LonePostgres.of(database)


def member_of(config: Config, reactor: Any) -> Membership:
    """Build the membership. Raises ConfigError if this reactor, or this system, cannot notice that it stood still."""
    from holdfast.cluster.members import Candidate
    from holdfast.cluster.membership import Membership, boottime
    from holdfast.scheduling.reactor import guard_turns

    cluster = config.cluster
    candidate = Candidate(
        cluster=cluster.name, node=config.node.id, lease=round(1000 * cluster.lease), address=cluster.address,
        config_hash=hash_of(config),
    )  # fmt: skip
    membership = Membership(candidate, lease=cluster.lease, grace=cluster.store_grace, reactor=reactor)
    if not guard_turns(reactor, membership, boottime):
        raise ConfigError(
            [config.source.problem(("cluster", "name"), "needs Linux and its epoll reactor; remove [cluster]")]
        )
    return membership


def hash_of(config: Config) -> str:
    """Return what stands for all options that should be the same on all members."""
    values = [(key, repr(value)) for key, value, *_ in present_values(config) if key.partition(".")[0] not in _OWN]
    values = [each for each in values if each[0] != "cluster.address"]
    return hashlib.sha256(repr(sorted(values)).encode()).hexdigest()[:12]


def exchange_of(
    membership: Membership | None, reactor: Any, durable: DurableStore, retained: RetainedMessages,
    replays: ReplayRegistry,
) -> Exchange | None:  # fmt: skip
    """Build the exchange with the other members; None for a broker without ``[cluster]``."""
    if membership is None:
        return None
    from holdfast.cluster.exchange import Exchange
    from holdfast.cluster.postgres_bus import PostgresBus
    from holdfast.storage.postgres import PostgresDatabase

    def bus(parts: OpenStore) -> PostgresBus:
        assert isinstance(parts.database, PostgresDatabase)
        return PostgresBus(parts.database, durable.node, reactor)

    exchange = Exchange(
        durable, reactor, retained=retained, replays=replays, bus=bus, incarnation=lambda: membership.incarnation
    )
    membership.on_places = exchange.places
    return exchange


def attach(
    membership: Membership,
    clock: IReactorTime,
    durable: DurableStore,
    registry: SessionRegistry,
    draining: Draining,
    fence: Fence,
) -> None:
    """Let the membership use the other parts. The Sessions of this node inherit Wills and leases of dead nodes."""
    MemberDraining(membership, durable, draining, clock)
    returned = ReturnedElsewhere(clock, durable, registry)

    def inherit(found: HandedOver) -> None:
        registry.inherit([will_of(row) for row in found.wills], leases_of(found.leases))
        returned.start()

    membership.attach(durable, on_lost=fence, on_inherited=inherit)
    durable.when_open(lambda _: returned.start())


class ReturnedElsewhere:
    """Discards Wills of an earlier process, or of a dead node, whose clients have stored a new Will at another node.

    It looks at intervals as long as there are any. A client that has come back to another node without a Will is not
    noticed.
    """

    def __init__(self, clock: IReactorTime, durable: DurableStore, registry: SessionRegistry) -> None:
        self._durable = durable
        self._registry = registry
        self._job = PeriodicJob(
            self._look, name="looking for clients at other nodes", interval=RETURNS_INTERVAL, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip

    def start(self) -> None:
        """Look until no such Will is left."""
        self._job.start(RETURNS_INTERVAL)

    @as_deferred
    async def _look(self) -> None:
        parts, waiting = self._durable.parts, self._registry.lost_before()
        if parts is None or not waiting:
            self._job.stop()
            return
        self._registry.are_back(await parts.writer.run(partial(_at_other_nodes, self._durable.node, waiting)))


def _at_other_nodes(node: int, client_ids: Sequence[str], connection: Connection) -> list[str]:
    """Return which of these clients have a Will at another node, as clients that are connected."""
    from holdfast.cluster.members import CONNECTED
    from holdfast.storage.postgres_values import Texts

    cursor = connection.cursor()
    cursor.execute(
        f"SELECT client_id FROM wills WHERE node <> ? AND client_id = ANY(?) AND {CONNECTED}",  # noqa: S608 - constants
        (node, Texts(client_ids)),
    )
    return [client_id for (client_id,) in cursor.fetchall()]
