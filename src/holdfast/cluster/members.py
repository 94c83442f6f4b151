"""The members of a cluster in the database: joining, renewing, taking over from the dead.

How it works. ``cluster_members`` has a row for each node, with its incarnation and until when its lease lasts, by the
database's clock. Whoever takes the place of a node, be it the node itself after a restart, or a living member, does it
in this order, under one advisory lock:

    1  raise the incarnation, and commit, on the condition that the lease has ended
    2  end the connection that holds the node's lock, if there is one
    3  take the node's lock

A writer compares its incarnation when it has taken the node's lock, and in each transaction before it writes. So after
3, every commit of the old incarnation is visible, or will never be. Only then the dead node's Wills and leases of
retained messages are handed over, in one transaction of the heir's writer, which compares the heir's incarnation as
well. If the heir dies in between, its connection ends with the lock, and the next one begins at 1 again.

The lease has a table of its own, beside ``nodes``: each commit that changes the totals locks the node's row there, and
an import holds it for long. A renewal must not wait for that, nor must 1.

Sessions stay with their node, and leases of retained messages that end with a stored Session stay with that Session.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
from attrs import frozen
from psycopg import pq

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.storage import layouts
from holdfast.storage.driver import Cursor
from holdfast.storage.location import StoreLate, StoreUnusable
from holdfast.storage.postgres import PostgresDatabase, alone_here, end_holders, lock_within, shares_company
from holdfast.storage.postgres_values import JOINING, LOCKS

#: the versions of what members say to each other and rely on in the database, the oldest and the newest that this
#: program understands
PROTOCOLS = (1, 1)
#: milliseconds to wait for others that join or take over, and for the lock of a dead node
_PATIENCE = 10_000
#: seconds that a connection of its own may take to be opened
_CONNECT_TIMEOUT = 2

_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
_ALIVE = "state IN ('joining', 'member', 'draining')"
#: the nodes whose lease has ended; none while the server has run for less than the lease of the one who asks
_DEAD = (
    f"SELECT node FROM cluster_members WHERE {_ALIVE} AND lease_until <= {_NOW} AND node <> {{node}} AND "
    "pg_postmaster_start_time() <= clock_timestamp() - {lease} * interval '1 ms' ORDER BY node"
)
#: each node that is not removed, as NODE:INCARNATION:1:HASH if nobody has taken over from it, else :0:HASH
_PLACES = (
    f"SELECT node || ':' || incarnation || ':' || CAST({_ALIVE} AS integer) || ':' || config_hash "
    "FROM cluster_members WHERE state <> 'left' ORDER BY node"
)
_RENEW = (
    f"WITH renewed AS (UPDATE cluster_members SET lease_until = {_NOW} + {{lease}}, "
    "state = CASE WHEN state = 'draining' AND '{state}' = 'member' THEN state ELSE '{state}' END "
    "WHERE node = {node} AND incarnation = {incarnation} RETURNING state) "
    f"SELECT (SELECT state FROM renewed), {_NOW}, array_to_string(ARRAY({_DEAD}), ' '), "
    f"array_to_string(ARRAY({_PLACES}), ' ')"
)
#: the Will of a client that is connected: one that has due_at or lost is of a client that has gone
CONNECTED = "due_at IS NULL AND lost = 0"
_RAISE = (
    "UPDATE cluster_members SET incarnation = incarnation + 1 "
    f"WHERE node = ? AND {_ALIVE} AND lease_until <= {_NOW} RETURNING incarnation"
)
_BEGIN = (
    "INSERT INTO cluster_members (node, cluster, incarnation, lease_until, state, protocol_min, protocol_max, "
    f"config_hash, address) VALUES (?, ?, 1, {_NOW} + ?, 'joining', ?, ?, ?, ?) ON CONFLICT (node) DO UPDATE SET "
    "cluster = excluded.cluster, incarnation = cluster_members.incarnation + 1, lease_until = excluded.lease_until, "
    "state = excluded.state, protocol_min = excluded.protocol_min, protocol_max = excluded.protocol_max, "
    "config_hash = excluded.config_hash, address = excluded.address RETURNING incarnation"
)
_LEAVE = f"UPDATE cluster_members SET lease_until = {_NOW} WHERE node = {{node}} AND incarnation = {{incarnation}}"
# ruff: noqa: S608 - the statements are built from constants and integers


@frozen(kw_only=True)
class Candidate:
    """A node that joins: ``lease`` is in milliseconds."""

    cluster: str
    node: int
    lease: int
    address: str
    config_hash: str


@frozen(kw_only=True)
class Member:
    """A row of the table. ``lease_until`` is of the database's clock, in milliseconds.

    ``left`` is how many milliseconds its lease lasts from now; 0 or less: it has ended.
    """

    node: int
    cluster: str
    incarnation: int
    lease_until: int
    left: int
    state: str
    protocols: tuple[int, int]
    config_hash: str
    address: str

    @property
    def is_alive(self) -> bool:
        """Whether it may serve clients."""
        return self.state in ("joining", "member", "draining") and self.left > 0


@frozen
class Place:
    """A node that is not removed. ``lives``: nobody has taken over from it, so it may serve clients at any time.

    ``config_hash`` stands for its configuration, as far as members share it.
    """

    node: int
    incarnation: int
    lives: bool
    config_hash: str = ""


@frozen(kw_only=True)
class Renewal:
    """The answer to a renewal. ``now`` is the database's time in milliseconds; ``dead`` are nodes to take over from.

    ``places`` are all nodes that are not removed, this one among them. ``drains``: an operator has asked this one to.
    """

    renewed: bool
    now: int
    dead: tuple[int, ...]
    places: tuple[Place, ...] = ()
    drains: bool = False


@frozen
class HandedOver:
    """The rows of ``wills`` and ``retained_leases`` that have come from a dead node."""

    wills: Sequence[tuple[Any, ...]]
    leases: Sequence[tuple[Any, ...]]


class UnknownNode(StoreUnusable):
    """No node has this number."""


class StillLeased(StoreLate):
    """The lease of an earlier process of this node has not ended yet. ``incarnation`` and ``until`` are that process's.

    It ends by itself if that process is dead.
    """

    def __init__(self, message: str, incarnation: int, until: int) -> None:
        super().__init__(message)
        self.incarnation = incarnation
        self.until = until


def read_members(cursor: Any) -> list[Member]:
    """Return all rows, by node."""
    cursor.execute(
        f"SELECT node, cluster, incarnation, lease_until, lease_until - {_NOW}, state, protocol_min, protocol_max, "
        "config_hash, address FROM cluster_members ORDER BY node"
    )
    return [
        Member(
            node=node, cluster=cluster, incarnation=incarnation, lease_until=until, left=left, state=state,
            protocols=(oldest, newest), config_hash=config_hash, address=address,
        )
        for node, cluster, incarnation, until, left, state, oldest, newest, config_hash, address in cursor.fetchall()
    ]  # fmt: skip


def join(database: PostgresDatabase, candidate: Candidate) -> int:
    """Begin an incarnation of this node. Return its number.

    It takes over from no other node: a member does that, this one too once it renews its lease. So a node that joins
    after an outage leaves the living members the time to renew theirs. Raises :class:`StoreUnusable` if this node
    cannot be a member, :class:`StoreLate` if it may soon.
    """
    where = database.location
    with database.explaining_errors(), database.open_connection() as connection:
        connection.execute("SET synchronous_commit = on")
        check_server(database, connection)
        # Before anything of this node's place changes: a broker alone may have the same node.id.
        if not shares_company(connection):
            raise StoreUnusable(f"{where}: {alone_here(connection)}")
        with _alone(connection, where):
            cursor = connection.cursor()
            members = read_members(cursor)
            _check_peers(members, candidate, where)
            own = next((member for member in members if member.node == candidate.node), None)
            if own is not None and own.is_alive:
                left = f"{own.left / 1000:.1f} s"
                raise StillLeased(
                    f"{where}: the lease of an earlier process with node.id = {candidate.node} lasts for {left} more",
                    own.incarnation,
                    own.lease_until,
                )
            cursor.execute(
                _BEGIN,
                (
                    candidate.node, candidate.cluster, candidate.lease, *PROTOCOLS,
                    candidate.config_hash, candidate.address,
                ),
            )  # fmt: skip
            ((incarnation,),) = cursor.fetchall()
            end_holders(connection, candidate.node, where)
    return int(incarnation)


def _check_peers(members: Sequence[Member], candidate: Candidate, where: str) -> None:
    for other in members:
        if other.node == candidate.node or not other.is_alive:
            continue
        if other.cluster != candidate.cluster:
            raise StoreUnusable(
                f'{where}: is used by the cluster "{other.cluster}" (node.id {other.node}); set cluster.name ='
                f' "{other.cluster}", or give "{candidate.cluster}" a database of its own'
            )
        if other.protocols[0] > PROTOCOLS[1] or other.protocols[1] < PROTOCOLS[0]:
            older = "this node" if other.protocols[0] > PROTOCOLS[1] else f"node.id {other.node}"
            raise StoreUnusable(
                f"{where}: node.id {other.node} has the cluster's protocols {_range(other.protocols)}, this node has"
                f" {_range(PROTOCOLS)}; install a newer version on {older} first"
            )


def _range(protocols: tuple[int, int]) -> str:
    return " to ".join(map(str, dict.fromkeys(protocols)))


@contextmanager
def _alone(connection: psycopg.Connection[Any], where: str) -> Iterator[None]:
    """Join, or take over, while nobody else does."""
    if not lock_within(connection, _PATIENCE, "pg_advisory_lock", JOINING, 0):
        raise StoreLate(
            f"{where}: another node has been joining, or taking over from a dead one, for {_PATIENCE // 1000} s"
        )
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(?, 0)", (JOINING,))


@contextmanager
def taken_place(connection: psycopg.Connection[Any], node: int, where: str) -> Iterator[None]:
    """Take the place of a node whose lease has ended: nothing of its old incarnation becomes visible any more.

    The connection has the node's lock meanwhile. Raises :class:`StorageFailure` if the node is alive after all.
    """
    cursor = connection.cursor()
    cursor.execute(_RAISE, (node,))
    if not cursor.fetchall():
        raise StorageFailure(FailureKind.REFUSED, f"node {node} has renewed its lease", where)
    end_holders(connection, node, where)
    if not lock_within(connection, _PATIENCE, "pg_advisory_lock", LOCKS, node):
        raise StorageFailure(FailureKind.UNAVAILABLE, f"the connection of node {node} does not end", where)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(?, ?)", (LOCKS, node))


def hand_over(cursor: Cursor, dead: int, heir: int) -> HandedOver:
    """Give the Wills and the leases of retained messages of a dead node to another one, in the present transaction.

    The Will of a client that has stored a new one at another node is over. Call it within :func:`taken_place`.
    """
    cursor.execute("SET LOCAL synchronous_commit = on")
    cursor.execute(
        "DELETE FROM wills WHERE node = ? AND client_id IN (SELECT client_id FROM wills WHERE node <> ? AND "
        f"{CONNECTED})",
        (dead, dead),
    )
    cursor.execute(f"UPDATE wills SET node = ? WHERE node = ? RETURNING {layouts.wills.names}", (heir, dead))
    wills = list(cursor.fetchall())
    cursor.execute(
        "UPDATE retained_leases SET node = ? WHERE node = ? AND (term <> 'session' OR session = 0) "
        f"RETURNING {layouts.retained_leases.names}",
        (heir, dead),
    )
    leases = list(cursor.fetchall())
    cursor.execute("UPDATE cluster_members SET state = 'dead' WHERE node = ?", (dead,))
    return HandedOver(wills, leases)


def remove(cursor: Cursor, node: int, where: str) -> None:
    """Note that a dead node will not come back. Its row stays: a new holder of the number begins above its incarnation.

    Raises :class:`StoreUnusable` if it is not dead.
    """
    found = {member.node: member for member in read_members(cursor)}
    member = found.get(node)
    if member is None:
        raise StoreUnusable(f"{where}: has no node {node}; holdfast node list shows the nodes")
    if member.is_alive:
        raise StoreUnusable(f"{where}: node {node} is alive; stop it first")
    if member.state not in ("dead", "left"):
        raise StoreUnusable(
            f"{where}: no member has taken over from node {node} yet; look again in some seconds, or start one"
        )
    cursor.execute("UPDATE cluster_members SET state = 'left' WHERE node = ?", (node,))


def drain(cursor: Cursor, node: int, where: str, begin: bool) -> None:
    """Ask a member to send its clients to others, or to serve clients again. It notices with its next renewal.

    Raises :class:`UnknownNode`, and StoreUnusable if it does not serve clients, or does not drain.
    """
    before, after = ("member", "draining") if begin else ("draining", "member")
    cursor.execute(
        f"UPDATE cluster_members SET state = ? WHERE node = ? AND state IN (?, ?) AND lease_until > {_NOW} "
        "RETURNING node",
        (after, node, before, after),
    )
    if cursor.fetchall():
        return
    found = {member.node: member for member in read_members(cursor)}
    member = found.get(node)
    if member is None:
        raise UnknownNode(f"{where}: has no node {node}; holdfast node list shows the nodes")
    if not member.is_alive:
        raise StoreUnusable(f"{where}: node {node} does not run, and serves no client")
    raise StoreUnusable(f"{where}: node {node} is {member.state}, and serves no client yet; try again in some seconds")


# What a server has to allow: connections that are the server's own, and that a node may end.


def pooler_between(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether something between this process and the server shares the server's connections out.

    A pooler tells one number at the beginning, and statements may go to servers with others.
    """
    told = connection.info.backend_pid
    return any(
        (found := connection.execute("SELECT pg_backend_pid()").fetchone()) is None or found[0] != told
        for _ in range(2)
    )


def may_end_connections(database: PostgresDatabase, connection: psycopg.Connection[Any]) -> bool:
    """Tell whether this user may end its own connections. It ends one that it opens."""
    with database.open_connection() as victim:
        pid = victim.info.backend_pid
        try:
            ended = connection.execute("SELECT pg_terminate_backend(CAST(? AS integer))", (pid,)).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return False
    return ended == (True,)


def check_server(database: PostgresDatabase, connection: psycopg.Connection[Any]) -> None:
    """Raise :class:`StoreUnusable` if no member can be fenced on this server."""
    if pooler_between(connection):
        raise StoreUnusable(
            f"{database.location}: a pooler is in between, which breaks [cluster]; give storage.url the server itself"
        )
    if not may_end_connections(database, connection):
        raise StoreUnusable(
            f"{database.location}: its user may not end its own connections, so [cluster] could not stop a dead member;"
            " GRANT EXECUTE ON FUNCTION pg_terminate_backend to it, or remove [cluster]"
        )


# Renewing a lease: on a connection of its own, which is given up if the server does not answer in time.


class LeaseConnection:
    """Renews the lease of one incarnation, in any thread, one call at a time. Each call takes ``patience`` seconds at
    most, and as long again if it has to connect.
    """

    def __init__(self, database: PostgresDatabase, node: int, incarnation: int, lease: int, patience: float) -> None:
        self._database = database
        self._values = {"node": node, "incarnation": incarnation, "lease": lease}
        self._patience = patience
        self._connection: psycopg.Connection[Any] | None = None

    def renew(self, state: str = "member") -> Renewal:
        """Renew the lease, in a state. Raises :class:`StorageFailure` if the server does not answer."""
        ((present, now, dead, places),) = self._ask(_RENEW.format(**self._values, state=state))
        return Renewal(
            renewed=present != "",
            drains=present == "draining",
            now=int(now),
            dead=tuple(map(int, dead.split())),
            places=tuple(_place(*text.split(":", 3)) for text in places.split()),
        )

    def leave(self) -> None:
        """End the lease now. Raises :class:`StorageFailure`."""
        self._ask(_LEAVE.format(**self._values))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, statement: str) -> list[tuple[str, ...]]:
        try:
            if self._connection is None:
                parameters = {**self._database.parameters(), "connect_timeout": _CONNECT_TIMEOUT}
                self._connection = psycopg.connect(**parameters, autocommit=True)
            return _asked(self._connection.pgconn, statement.encode(), self._patience)
        except (psycopg.Error, OSError) as error:
            self.close()
            raise self._database.failure(error) from error


def _place(node: str, incarnation: str, lives: str, config_hash: str) -> Place:
    return Place(int(node), int(incarnation), lives == "1", config_hash)


def _asked(pgconn: pq.abc.PGconn, statement: bytes, seconds: float) -> list[tuple[str, ...]]:
    """Return the rows of a statement. Raises psycopg.Error, also if the server does not answer in time.

    The driver itself waits without end, even if a network in between takes everything and delivers nothing.
    """
    deadline = monotonic() + seconds
    pgconn.send_query(statement)
    waiting = select.poll()
    waiting.register(pgconn.socket, select.POLLIN)
    unsent = pgconn.flush()
    rows: list[tuple[str, ...]] = []
    while True:
        if unsent:
            unsent = pgconn.flush()
        pgconn.consume_input()
        if not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                return rows
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
            for row in range(result.ntuples):
                values = [result.get_value(row, column) or b"" for column in range(result.nfields)]
                rows.append(tuple(value.decode() for value in values))
            continue
        left = deadline - monotonic()
        if left <= 0:
            raise psycopg.OperationalError(f"no answer within {seconds:g} s")
        waiting.poll(1000 * (min(left, 0.05) if unsent else left))
