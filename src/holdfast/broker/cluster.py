"""Builds the membership in a cluster, and joins it with the reactor and the Sessions.

Without ``[cluster]`` nothing of it is imported, and a Postgres database is for this broker alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.config import Config, ConfigError
from holdfast.config.differences import present_values
from holdfast.retained.leases import leases_of
from holdfast.sessions.durable import will_of
from holdfast.sessions.registry import SessionRegistry
from holdfast.storage.database import Database
from holdfast.storage.store import DurableStore

if TYPE_CHECKING:
    from holdfast.cluster.members import HandedOver
    from holdfast.cluster.membership import Membership

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


def attach(
    membership: Membership, durable: DurableStore, registry: SessionRegistry, fence: Callable[[str], None]
) -> None:
    """Let the membership use the other parts: what comes from dead nodes goes to the Sessions of this one."""

    def inherit(found: HandedOver) -> None:
        registry.inherit([will_of(row) for row in found.wills], leases_of(found.leases))

    membership.attach(durable, on_lost=fence, on_inherited=inherit)
