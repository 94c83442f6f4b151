"""Builds the membership in a cluster, and joins it with the reactor and the Sessions.

Without ``[cluster]`` nothing of it is imported, and a Postgres database is for this broker alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.config import Config, ConfigError
from holdfast.config.differences import present_values
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.leases import leases_of
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.rows import will_of
from holdfast.storage.database import Database
from holdfast.storage.store import DurableStore, OpenStore

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange
    from holdfast.cluster.members import HandedOver
    from holdfast.cluster.membership import Membership

Fence = Callable[[str], None]

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


def attach(membership: Membership, durable: DurableStore, registry: SessionRegistry, fence: Fence) -> None:
    """Let the membership use the other parts. The Sessions of this node inherit Wills and leases of dead nodes."""

    def inherit(found: HandedOver) -> None:
        registry.inherit([will_of(row) for row in found.wills], leases_of(found.leases))

    membership.attach(durable, on_lost=fence, on_inherited=inherit)
