"""Builds the listener of the API: its limits, the identification of callers, and its calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.accounts.users import Users
from holdfast.admin.callers.links import Links
from holdfast.admin.callers.sessions import DashboardSessions
from holdfast.admin.calls.head import GoesOn, Identify, Unwrap
from holdfast.admin.http.forwarding import Forwarding
from holdfast.admin.http.guards import Guards
from holdfast.admin.http.handshakes import TLSOfAPI
from holdfast.admin.http.identities import Identities
from holdfast.admin.http.listener import ListenerFactory, ListenerSite
from holdfast.admin.http.site import Answering, MostBytes
from holdfast.admin.http.upgrade import MakeProtocol, Upgrade
from holdfast.admin.logins.logins import LoginAPI, VerifyUser
from holdfast.audit.audit import REFUSED, IAudit
from holdfast.auth.failures.bans import Bans
from holdfast.auth.failures.failures import IFailures
from holdfast.auth.passwords.hashes import HashParameters, nobodys_hash
from holdfast.auth.passwords.hashes import verify as verify_hash
from holdfast.auth.passwords.hashing_threads import HashingThreads
from holdfast.compose.accounts import Accounts, hash_parameters_of
from holdfast.compose.console import PATH as CONSOLE_PATH
from holdfast.config import Config
from holdfast.config.sections.admin import AdminConfig
from holdfast.listening import BACKLOG, CannotListen, Listener, Listening
from holdfast.peers.acceptance import Acceptance
from holdfast.peers.address import Peer
from holdfast.peers.limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.peers.trusted_proxies import TrustedProxies
from holdfast.refused_connections import RefusedConnections
from holdfast.sessions.counters import Counters
from holdfast.transports.configured import ComposedTLS
from holdfast.transports.tls.explanations import explain, not_tls

#: one set for each value of the option that is or was in use
_proxies = lru_cache(maxsize=4)(TrustedProxies)

#: the name of the listener in lines of the log, of the audit log, and of the start
NAME = "admin"


class AdminListener:
    """The listener of the API. Without an endpoint it is never open."""

    _log = Logger()

    def __init__(self, config: AdminConfig, reactor: Any, factory: ListenerFactory, site: ListenerSite) -> None:
        self._config = config
        self._listening = Listening(reactor, [])
        self._factory = factory
        self._site = site
        self._present_url: str | None = None

    @property
    def url(self) -> str | None:
        """The address of the dashboard, None if it is off."""
        return self._present_url

    @property
    def late(self) -> list[str]:
        """Why it does not listen yet, if it waits for its address."""
        return self._listening.late

    def open(self, wait: bool = False) -> list[str]:
        """Begin to listen; return ``URL`` of the API, or nothing. Raises CannotListen.

        If the endpoint is the default one, and another program has its port, the broker runs without the API. With
        ``wait``, :meth:`open_late` opens it when this machine has its address.
        """
        endpoint = self._config.server_endpoint
        if endpoint is None:
            return []
        listener = Listener(NAME, self._config.endpoint, endpoint.unproxied(BACKLOG), self._factory)
        try:
            return self._opened(self._listening.add([listener], wait))
        except CannotListen as error:
            if not self._config.is_default_endpoint:
                raise CannotListen(f'{error}; name another endpoint in admin.endpoint, or none: ""') from None
            self._log.warn(
                "there is no API over HTTP and no dashboard: {error}; name another endpoint in admin.endpoint, or none:"
                ' ""', error=error,
            )  # fmt: skip
            return []

    def open_late(self) -> list[str]:
        """Try again if it is late; return ``URL`` of the API, or nothing."""
        return self._opened(self._listening.open_late())

    def _opened(self, lines: list[str]) -> list[str]:
        """Note where it listens: no line, or one."""
        urls = [self._url(line.partition(" ")[2]) for line in lines]
        self._present_url = urls[0] if urls else self._present_url
        return urls

    def close(self) -> list[Deferred[None]]:
        """Stop listening, and abort all calls."""
        self._site.abort()
        return self._listening.close()

    def _url(self, address: str) -> str:
        """Return the address of the API for a browser."""
        kind, _, place = address.partition(":")
        if kind != "tcp":
            return address
        host, _, port = place.rpartition(":")
        shown = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - compared only
        return f"{'https' if self._config.tls is not None else 'http'}://{shown}:{port}/"


def compose_admin_listener(
    config: Config,
    *,
    answering: Answering,
    identify: Identify,
    goes_on: GoesOn,
    unwrap: Unwrap,
    most_bytes: MostBytes,
    reactor: Any,
    process: ProcessConnections,
    refused: RefusedConnections,
    bans: Bans,
    tls: ComposedTLS,
    console: MakeProtocol,
) -> AdminListener:
    """Build the listener of the API. ``most_bytes`` limits bodies; ``console`` makes the protocol of a console."""
    section = config.admin
    limits = ConnectionLimits(
        max_connections=section.max_connections, max_connections_per_address=section.max_connections_per_address
    )

    def tell(refusal: Refusal, peer: Peer) -> None:
        refused.refused(NAME, limits, refusal, peer)

    acceptance = Acceptance(limits, process, reactor, tell, None, bans.has_peer)
    site = ListenerSite(
        answering, most_bytes, reactor, identify, section.max_connections, goes_on=goes_on, unwrap=unwrap,
        gave_way=partial(tell, Refusal.GAVE_WAY),
    )  # fmt: skip
    site.upgrades[CONSOLE_PATH.encode()] = Upgrade(console, site.released, reactor)
    secured = TLSOfAPI(
        maker=tls.admin_maker, line_up=tls.line_up, not_tls=not_tls, explain=explain,
        failed=lambda peer, cause: refused.handshake_failed(NAME, peer, cause),
    )  # fmt: skip
    factory = ListenerFactory(site, acceptance, secured)
    return AdminListener(section, reactor, factory, site)


@frozen(kw_only=True)
class Callers:
    """The parts that identify callers and log people in."""

    identities: Identities
    logins: LoginAPI
    forwarding: Forwarding
    sessions: DashboardSessions


def compose_callers(
    accounts: Accounts,
    *,
    config: Callable[[], Config],
    threads: HashingThreads,
    failures: Callable[[], IFailures],
    audit: IAudit,
    url: Callable[[], str | None],
    seconds: Callable[[], float],
    now: Callable[[], int],
    banned: Callable[[Peer], bool],
    counters: Counters,
) -> Callers:
    """Build the identification of callers. ``config`` returns the present configuration; ``seconds`` is any clock."""
    sessions, users = DashboardSessions(seconds), accounts.users

    def failed(peer: Peer, name: str) -> None:
        counters.logins_failed += 1
        counters.addresses_banned += banned(peer)
        fields = {
            "address": str(peer.ip or "unix"), "port": peer.port or None, "listener": NAME, "failed_login": True,
            "reason": "API_LOGIN",
        }  # fmt: skip
        audit.tell(REFUSED, peer.group, fields, user=name)

    def verify() -> VerifyUser | None:
        group = config().admin.users_group
        return partial(_verify, users, threads, hash_parameters_of(config()), group) if group else None

    users.on_change(lambda changes: sessions.end_of(changes.revoked | changes.regrouped))
    identities = Identities(Guards(lambda: config().admin.hosts), accounts.keys, sessions, failures, failed, banned)
    logins = LoginAPI(sessions, Links(seconds), identities, verify=verify, url=url, now=now)
    forwarding = Forwarding(lambda: _proxies(config().admin.trusted_proxies))
    return Callers(identities=identities, logins=logins, forwarding=forwarding, sessions=sessions)


def _verify(
    users: Users, threads: HashingThreads, parameters: HashParameters, group: str, username: str, password: bytes
) -> Deferred[bool]:
    """Verify the password of a user, who must be in a group. Raises Busy.

    An unknown user takes as long as a user with a new hash: its hash has these parameters.
    """
    user = users.stored(username)
    stored = nobodys_hash(parameters) if user is None else user.password_hash
    allowed = user is not None and group in user.groups

    def right(verified: bool) -> bool:
        # The user may have been removed, or have another password, meanwhile.
        return verified and allowed and users.stored(username) == user

    return threads.run(partial(verify_hash, stored, password)).addCallback(right)
