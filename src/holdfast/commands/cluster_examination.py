"""The examination of a broker with ``[cluster]``: its database, its peers, its secret, and the servers of NATS.

How it works. Without ``[cluster]`` each check is silent. What the database can tell is read on a connection of its own;
a database that is away is a finding of another check. Each server of NATS is asked as the broker would do it: it is
sent the login, a subscription and a PING, and its PONG means that it has accepted them.

Nothing is written anywhere, and no lease is taken: the broker and other members may run meanwhile.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from holdfast.commands.examination import Check, Finding, advice, problem, secret_file
from holdfast.config import Config, ConfigError
from holdfast.config.sections.cluster import NatsServer
from holdfast.core.terminal import counted, printable
from holdfast.storage.database import Durability
from holdfast.storage.location import StoreUnusable, shown
from holdfast.storage.maintenance import database_at

if TYPE_CHECKING:
    import psycopg

    from holdfast.cluster.nats import Info
    from holdfast.storage.postgres import PostgresDatabase

_PAGE = "see docs/operator/cluster.md"
#: seconds that a server of NATS may take, and that the clocks may differ
_PATIENCE, _CLOCK_TOLERANCE = 5.0, 5.0
#: bytes of a message that a server of NATS should take: larger ones are sent in parts, each with work of its own
_GOOD_PAYLOAD = 64 << 10
#: the first version of NATS that is still maintained, as its number before the first dot
_MAINTAINED = 2
#: bytes of memory for a Topic Filter of another node, besides its characters: measured in the routing table
_PER_FILTER = 1100
#: the part of the memory that Topic Filters of other nodes may take without a finding
_MOST_FOR_FILTERS = 0.5
_STORED_FILTERS = (
    "SELECT count(*), coalesce(sum(length(topic_filter)), 0) FROM (SELECT DISTINCT session_id & 255, topic_filter "
    "FROM session_subscriptions WHERE session_id & 255 <> ?) AS found"
)


def _is_member(config: Config) -> bool:
    return bool(config.cluster.name) and not config.storage.url.startswith("sqlite")


@contextmanager
def _connected(config: Config) -> Iterator[tuple[PostgresDatabase, psycopg.Connection[tuple[object, ...]]]]:
    """Give the database and a connection to it. Raises StoreUnusable, also for an error within."""
    from holdfast.storage.postgres import PostgresDatabase

    found = database_at(config.storage.url, Durability.FULL)
    assert isinstance(found, PostgresDatabase)
    with found.explaining_errors(), found.open_connection() as connection:
        yield found, connection


def fencing(config: Config) -> Iterator[Finding]:
    """Yield a finding if a member could not be fenced: a pooler is in between, or connections stay."""
    if not _is_member(config):
        return
    from holdfast.cluster.members import check_server

    try:
        with _connected(config) as (found, connection):
            check_server(found, connection)
    except StoreUnusable as error:
        where = f"{database_at(config.storage.url, Durability.FULL).location}: "
        yield problem(shown(config.storage.url), str(error).removeprefix(where), _PAGE)


def clocks(config: Config, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield a finding if this machine's clock differs from the database's."""
    if not _is_member(config):
        return
    try:
        with _connected(config) as (_, connection):
            before = now()
            row = connection.execute(
                "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
            ).fetchone()
            after = now()
    except StoreUnusable:  # ``fencing`` tells it
        return
    assert row is not None
    told = float(str(row[0]))
    off = before - told if before > told else told - after if told > after else 0.0
    if off > _CLOCK_TOLERANCE:
        yield problem(
            "clock",
            f"it differs from that of the database's server by {off:,.0f} s: messages expire at different times on the"
            " members",
            "set both by NTP",
        )


def configurations(config: Config) -> Iterator[Finding]:
    """Yield a finding if living members have other options than this configuration."""
    if not _is_member(config):
        return
    from holdfast.broker.cluster import hash_of
    from holdfast.cluster.members import read_members

    own = hash_of(config)
    try:
        with _connected(config) as (_, connection):
            members = read_members(connection.cursor())
    except StoreUnusable:  # ``fencing`` tells it; a database without tables has no members
        return
    others = [str(each.node) for each in members if each.is_alive and each.config_hash != own]
    if others:
        yield advice(
            "configuration",
            f"node {', '.join(others)} of the cluster runs with another one",
            "give all members the same one, except for their own listeners, logs and the like, and restart them",
        )


def memory_for_subscriptions(config: Config, available: Callable[[], int] | None = None) -> Iterator[Finding]:
    """Yield a finding if the stored Subscriptions of all other nodes take much of this broker's memory."""
    if not _is_member(config):
        return
    from holdfast.sessions.memory_guard import MemoryUnknown, available_bytes

    try:
        most = (available or available_bytes)()
        with _connected(config) as (_, connection):
            row = connection.execute(_STORED_FILTERS, (config.node.id,)).fetchone()
    except (StoreUnusable, MemoryUnknown):  # ``fencing`` tells it; another system than Linux
        return
    assert row is not None
    number, characters = (int(str(each)) for each in row)
    needed = number * _PER_FILTER + 2 * characters
    limit = config.limits.memory
    if isinstance(limit, int):
        most = min(most, limit)
    elif limit is not None:
        most = most * limit.percent // 100
    if needed > _MOST_FOR_FILTERS * most:
        yield advice(
            "memory",
            f"{counted(number, 'stored Topic Filter')} of other nodes take some {needed >> 20:,} MB of"
            f" {most >> 20:,} MB",
            "give the machine more memory, or let clients use wildcards and shorter Session Expiry Intervals",
        )


def secret(config: Config) -> Iterator[Finding]:
    """Yield a finding if the secret or a certificate for NATS cannot be used, or others can change the secret."""
    if not _is_member(config) or not config.cluster.servers:
        return
    from holdfast.cluster.nats_settings import nats_settings

    try:
        nats_settings(config, os.environ)
    except ConfigError as error:
        for unusable in error.problems:
            yield problem(unusable.key or unusable.file, unusable.message, f"the broker does not start: {_PAGE}")
        return
    place = config.cluster.secret
    if place is not None and place.place == "file":
        yield from secret_file(config.absolute(place.name), "the secret of the cluster")


def nats_servers(config: Config) -> Iterator[Finding]:
    """Yield a finding for each server of NATS that the broker could not use, or not well."""
    if not _is_member(config) or any(True for _ in secret(config)):
        return  # without a usable secret and certificates the broker does not start
    for server in config.cluster.servers:
        subject = f"NATS at {server}"
        try:
            info = _asked(config, server)
        except _Unusable as unusable:
            yield advice(subject, str(unusable), f"{unusable.remedy}; the database carries messages meanwhile")
            continue
        if info.max_payload < _GOOD_PAYLOAD:
            yield advice(
                subject,
                f"its max_payload is {info.max_payload}: larger messages are sent in parts",
                "set max_payload: 1MB in its configuration",
            )
        major = info.version.partition(".")[0]
        if major.isdecimal() and int(major) < _MAINTAINED:
            yield advice(
                subject,
                f"its version {printable(info.version)} gets no corrections any more",
                f"install version {_MAINTAINED} or newer",
            )


class _Unusable(Exception):
    """A server cannot be used. The text is a clause; ``remedy`` says what to do."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def _asked(config: Config, server: NatsServer) -> Info:
    """Log in at a server, and return what it says of itself. Raises _Unusable."""
    from holdfast.cluster.nats import NatsError

    try:
        with ExitStack() as open_sockets:
            return _logged_in(config, server, open_sockets)
    except NatsError:
        raise _Unusable("another program than NATS answers", "correct cluster.bus") from None
    except ssl.SSLError as error:
        reason = error.reason if isinstance(error.reason, str) else str(error)
        verified = getattr(error, "verify_message", "")
        raise _Unusable(f"TLS failed: {verified or reason}", "correct cluster.tls, or its certificate") from None
    except TimeoutError:
        raise _Unusable(f"it does not answer within {_PATIENCE:g} s", "look at it, and at the network") from None
    except OSError as error:
        reason = str(error.strerror or error)
        raise _Unusable(f"it cannot be reached: {reason}", "start it, or correct it in cluster.bus") from None


def _logged_in(config: Config, server: NatsServer, open_sockets: ExitStack) -> Info:
    from holdfast.cluster.nats import Info, NatsParser, Ponged, Refused, publish, token
    from holdfast.cluster.nats_client import LEAST_PAYLOAD, greeting

    family = f"holdfast.{token(config.cluster.name)}"
    subject = f"{family}.doctor"
    connection = open_sockets.enter_context(socket.create_connection((server.host, server.port), _PATIENCE))
    parser = NatsParser()
    info: Info | None = None
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        data = connection.recv(1 << 16)
        if not data:
            raise _Unusable("it ends the connection", "look at its log")
        for event in parser.feed(data):
            if isinstance(event, Refused):
                if event.text.lower().startswith("permissions violation"):
                    remedy = f"allow the login to publish and to subscribe to {family}.>"
                else:
                    remedy = "correct the login in cluster.bus, or the users of NATS"
                raise _Unusable(f"it says: {printable(event.text[:200])}", remedy)
            if isinstance(event, Ponged) and info is not None:
                return info
            if not isinstance(event, Info) or info is not None:
                continue
            info = event
            if info.max_payload < LEAST_PAYLOAD:
                raise _Unusable(
                    f"its max_payload is {info.max_payload}, and members need {LEAST_PAYLOAD}",
                    "set max_payload: 1MB in its configuration",
                )
            if info.needs_tls or server.needs_tls:
                if not (info.needs_tls or info.offers_tls):
                    raise _Unusable(
                        "it has no TLS, and cluster.bus says tls://", "give it a certificate, or say nats://"
                    )
                wrapped = _context(config).wrap_socket(connection, server_hostname=server.host)
                connection = open_sockets.enter_context(wrapped)
            ask = greeting(server, "holdfast doctor", subject)
            ping = ask.rindex(b"PING")
            connection.sendall(ask[:ping] + publish(subject, b"") + ask[ping:])
    raise TimeoutError


def _context(config: Config) -> ssl.SSLContext:
    tls = config.cluster.tls
    context = ssl.create_default_context(cafile=str(config.absolute(tls.ca)) if tls.ca else None)
    if tls.certificate:
        key = str(config.absolute(tls.key)) if tls.key else None
        context.load_cert_chain(str(config.absolute(tls.certificate)), key)
    return context


CLUSTER_CHECKS: Sequence[Check] = (fencing, clocks, configurations, memory_for_subscriptions, secret, nats_servers)
