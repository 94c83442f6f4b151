"""Builds the membership in a cluster, and joins it with the reactor and the Sessions.

Without ``[cluster]`` nothing of it is imported, and a Postgres database is for this broker alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from holdfast.broker.draining import MemberDraining
from holdfast.config import Config, ConfigError
from holdfast.config.differences import present_values
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.leases import leases_of
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.draining import Draining
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.rows import will_of
from holdfast.storage.database import Database
from holdfast.storage.store import DurableStore, OpenStore

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange
    from holdfast.cluster.fallback_bus import FallbackBus
    from holdfast.cluster.links import Bus
    from holdfast.cluster.members import HandedOver
    from holdfast.cluster.membership import Membership
    from holdfast.cluster.nats_bus import NatsBus
    from holdfast.cluster.nats_settings import NatsSettings

Fence = Callable[[str], None]

#: The tables and options that may differ from member to member. Members with another bus understand each other, and
#: the secret has a sign of its own (:mod:`holdfast.cluster.fallback_bus`).
_OWN = ("node", "listeners", "admin", "audit", "log", "alarms", "storage")
_OWN_OPTIONS = ("cluster.address", "cluster.bus", "cluster.secret", "cluster.tls")


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
    values = [
        (key, repr(value)) for key, value, *_ in present_values(config)
        if key.partition(".")[0] not in _OWN and ".".join(key.split(".")[:2]) not in _OWN_OPTIONS
    ]  # fmt: skip
    return hashlib.sha256(repr(sorted(values)).encode()).hexdigest()[:12]


class Carriers:
    """What carries messages between this node and the others: the database, and NATS if it is configured.

    ``fallback`` and ``nats`` are None without NATS, and before the exchange has begun.
    """

    def __init__(self, membership: Membership, node: int, reactor: Any, settings: NatsSettings | None) -> None:
        self._membership = membership
        self._node = node
        self._reactor = reactor
        self.settings = settings
        self.fallback: FallbackBus | None = None
        self.nats: NatsBus | None = None

    @property
    def by_node(self) -> Mapping[int, str]:
        """What carries messages to each member now, by its number: "nats" or "database". Empty without NATS."""
        if self.fallback is None:
            return {}
        from holdfast.cluster.fallback_bus import Way

        return {node: "nats" if way is Way.FIRST else "database" for node, way in self.fallback.ways.items()}

    @property
    def names(self) -> str:
        """What carries messages to the other members now: "nats", "postgres", or both while these differ."""
        used = set(self.by_node.values()) or {"nats" if self.is_connected else "database"}
        return " and ".join(sorted("postgres" if each == "database" else each for each in used))

    @property
    def left_to_database(self) -> list[int]:
        """The members that the database reaches and NATS does not."""
        return sorted(node for node, carrier in self.by_node.items() if carrier == "database")

    @property
    def is_connected(self) -> bool | None:
        """Whether a server of NATS takes messages now, None without NATS."""
        return None if self.nats is None else self.nats.is_connected

    def bus(self, parts: OpenStore) -> Bus:
        """Build the bus of an open store."""
        from holdfast.cluster.postgres_bus import PostgresBus
        from holdfast.storage.postgres import PostgresDatabase

        assert isinstance(parts.database, PostgresDatabase)
        postgres = PostgresBus(parts.database, self._node, self._reactor)
        settings = self.settings
        if settings is None:
            return postgres
        from holdfast.cluster.fallback_bus import FallbackBus
        from holdfast.cluster.nats_bus import NatsBus
        from holdfast.cluster.sealing import sign_of

        nats = self.nats = NatsBus(settings, self._node, self._membership.incarnation, self._reactor)
        sign = sign_of(settings.secret, settings.cluster)
        self.fallback = FallbackBus(nats, postgres, self._node, self._reactor, sign)
        return self.fallback


def carriers_of(
    config: Config, environment: Mapping[str, str], membership: Membership | None, reactor: Any
) -> Carriers | None:
    """Read the secret and the certificates of the bus; return None for a broker without ``[cluster]``.

    Raises ConfigError.
    """
    if membership is None:
        return None
    if not config.cluster.servers:
        return Carriers(membership, config.node.id, reactor, None)
    from holdfast.cluster.nats_settings import nats_settings

    return Carriers(membership, config.node.id, reactor, nats_settings(config, environment))


@frozen
class ClusterParts:
    """What the monitoring of a member looks at."""

    membership: Membership
    exchange: Exchange
    carriers: Carriers


def exchange_of(
    membership: Membership | None, carriers: Carriers | None, reactor: Any, durable: DurableStore,
    retained: RetainedMessages, replays: ReplayRegistry,
) -> Exchange | None:  # fmt: skip
    """Build the exchange with the other members; None for a broker without ``[cluster]``."""
    if membership is None or carriers is None:
        return None
    from holdfast.cluster.exchange import Exchange

    exchange = Exchange(
        durable, reactor, retained=retained, replays=replays, bus=carriers.bus,
        incarnation=lambda: membership.incarnation,
    )  # fmt: skip
    exchange.carrier = lambda: carriers.names
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

    def inherit(found: HandedOver) -> None:
        registry.inherit([will_of(row) for row in found.wills], leases_of(found.leases))

    membership.attach(durable, on_lost=fence, on_inherited=inherit)
