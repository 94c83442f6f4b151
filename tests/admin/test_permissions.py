"""Who may make which call: every route of a whole broker, asked by every kind of caller over HTTP, without a socket.

The table says of each route which scope it needs. A route that is not in it fails a test: think about who may call it,
then write it down. The handlers are replaced, so a status of 200 says that a caller has reached one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve, frozen
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.address import CLIENTS_PATH
from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.callers import DashboardSessions
from holdfast.admin.http.identities import Identities
from holdfast.admin.http.request import Guards
from holdfast.admin.routing import Route, RoutingTable
from holdfast.broker.compose import compose_broker
from holdfast.config import default
from holdfast.identity.api_keys import Keys, StoredKey
from holdfast.identity.failed_logins import UncountedFailures
from tests.admin.test_site import HTTPClient

OPEN, READ, PUBLISH, RETAINED_WRITE, ADMIN = Scope
#: a key with the scope read, or anybody on this machine
LOOPBACK = "loopback"
#: the control socket only
CONTROL = "control"

NEEDS: Mapping[tuple[str, str], Scope | str] = {
    ("DELETE", "/api/v5/alarms"): ADMIN,
    ("GET", "/api/v5/alarms"): READ,
    ("GET", "/api/v5/api_key"): ADMIN,
    ("POST", "/api/v5/api_key"): ADMIN,
    ("DELETE", "/api/v5/api_key/{name}"): ADMIN,
    ("POST", "/api/v5/backup"): ADMIN,
    ("GET", "/api/v5/backups"): READ,
    ("DELETE", "/api/v5/backups/{name}"): ADMIN,
    ("GET", "/api/v5/banned"): READ,
    ("POST", "/api/v5/banned"): ADMIN,
    ("DELETE", "/api/v5/banned/{as}/{who}"): ADMIN,
    ("GET", "/api/v5/bridges"): READ,
    ("POST", "/api/v5/bridges/{name}/pause"): ADMIN,
    ("POST", "/api/v5/bridges/{name}/resume"): ADMIN,
    ("GET", "/api/v5/clients"): READ,
    ("DELETE", "/api/v5/clients/{clientid}"): ADMIN,
    ("GET", "/api/v5/clients/{clientid}"): READ,
    ("GET", "/api/v5/clients/{clientid}/inflight_messages"): READ,
    ("GET", "/api/v5/clients/{clientid}/mqueue_messages"): READ,
    ("GET", "/api/v5/clients/{clientid}/subscriptions"): READ,
    ("POST", "/api/v5/clients/{clientid}/unsubscribe"): ADMIN,
    ("GET", "/api/v5/configs"): READ,
    ("PUT", "/api/v5/configs"): ADMIN,
    ("GET", "/api/v5/configs/toml"): ADMIN,
    ("POST", "/api/v5/dashboard/link"): CONTROL,
    ("GET", "/api/v5/jobs"): READ,
    ("DELETE", "/api/v5/jobs/{id}"): RETAINED_WRITE,
    ("GET", "/api/v5/jobs/{id}"): READ,
    ("GET", "/api/v5/listeners"): READ,
    ("POST", "/api/v5/login"): OPEN,
    ("POST", "/api/v5/logout"): OPEN,
    ("GET", "/api/v5/monitor"): READ,
    ("GET", "/api/v5/monitor_current"): READ,
    ("GET", "/api/v5/mqtt/retainer"): READ,
    ("PUT", "/api/v5/mqtt/retainer"): ADMIN,
    ("GET", "/api/v5/mqtt/retainer/count"): READ,
    ("GET", "/api/v5/mqtt/retainer/diff"): READ,
    ("GET", "/api/v5/mqtt/retainer/export"): READ,
    ("POST", "/api/v5/mqtt/retainer/flush"): ADMIN,
    ("GET", "/api/v5/mqtt/retainer/history"): READ,
    ("POST", "/api/v5/mqtt/retainer/history/archived"): ADMIN,
    ("GET", "/api/v5/mqtt/retainer/history/topics"): READ,
    ("POST", "/api/v5/mqtt/retainer/import"): RETAINED_WRITE,
    ("GET", "/api/v5/mqtt/retainer/info"): READ,
    ("POST", "/api/v5/mqtt/retainer/merge"): CONTROL,
    ("DELETE", "/api/v5/mqtt/retainer/message/{topic}"): RETAINED_WRITE,
    ("GET", "/api/v5/mqtt/retainer/message/{topic}"): READ,
    ("DELETE", "/api/v5/mqtt/retainer/messages"): RETAINED_WRITE,
    ("GET", "/api/v5/mqtt/retainer/messages"): READ,
    ("POST", "/api/v5/mqtt/retainer/messages"): RETAINED_WRITE,
    ("DELETE", "/api/v5/mqtt/retainer/replay"): ADMIN,
    ("DELETE", "/api/v5/mqtt/retainer/replay/{id}"): ADMIN,
    ("GET", "/api/v5/mqtt/retainer/policy"): READ,
    ("GET", "/api/v5/mqtt/retainer/replays"): READ,
    ("POST", "/api/v5/mqtt/retainer/restore"): RETAINED_WRITE,
    ("GET", "/api/v5/mqtt/retainer/telemetry"): READ,
    ("GET", "/api/v5/mqtt/retainer/tree"): READ,
    ("GET", "/api/v5/nodes"): READ,
    ("GET", "/api/v5/nodes/{node}"): READ,
    ("DELETE", "/api/v5/nodes/{node}/drain"): ADMIN,
    ("POST", "/api/v5/nodes/{node}/drain"): ADMIN,
    ("POST", "/api/v5/publish"): PUBLISH,
    ("POST", "/api/v5/publish/bulk"): PUBLISH,
    ("POST", "/api/v5/reload"): ADMIN,
    ("GET", "/api/v5/retained"): OPEN,  # its handler verifies the credentials of an MQTT client
    ("GET", "/api/v5/rules"): READ,
    ("POST", "/api/v5/rules"): ADMIN,
    ("DELETE", "/api/v5/rules/{number}"): ADMIN,
    ("PUT", "/api/v5/rules/{number}"): ADMIN,
    ("GET", "/api/v5/session"): OPEN,
    ("GET", "/api/v5/stats"): READ,
    ("GET", "/api/v5/status"): OPEN,
    ("GET", "/api/v5/subscriptions"): READ,
    ("GET", "/api/v5/trace"): ADMIN,
    ("GET", "/api/v5/users"): READ,
    ("POST", "/api/v5/users"): ADMIN,
    ("DELETE", "/api/v5/users/{user_id}"): ADMIN,
    ("GET", "/api/v5/users/{user_id}"): READ,
    ("PUT", "/api/v5/users/{user_id}"): ADMIN,
    ("GET", "/events"): READ,
    ("GET", "/healthz"): OPEN,
    ("GET", "/metrics"): LOOPBACK,
    ("GET", "/openapi.json"): LOOPBACK,
    ("GET", "/readyz"): OPEN,
    ("GET", "/status"): OPEN,
}

#: the calls that change the database: they are refused while it is away
STORES = {
    ("POST", "/api/v5/api_key"), ("DELETE", "/api/v5/api_key/{name}"),
    ("POST", "/api/v5/mqtt/retainer/flush"), ("POST", "/api/v5/mqtt/retainer/history/archived"),
    ("POST", "/api/v5/mqtt/retainer/import"), ("POST", "/api/v5/mqtt/retainer/merge"),
    ("DELETE", "/api/v5/mqtt/retainer/message/{topic}"),
    ("DELETE", "/api/v5/mqtt/retainer/messages"), ("POST", "/api/v5/mqtt/retainer/messages"),
    ("POST", "/api/v5/mqtt/retainer/restore"),
    ("DELETE", "/api/v5/nodes/{node}/drain"), ("POST", "/api/v5/nodes/{node}/drain"),
    ("POST", "/api/v5/rules"), ("DELETE", "/api/v5/rules/{number}"), ("PUT", "/api/v5/rules/{number}"),
    ("POST", "/api/v5/users"), ("DELETE", "/api/v5/users/{user_id}"), ("PUT", "/api/v5/users/{user_id}"),
}  # fmt: skip

_SCOPES = (READ, PUBLISH, RETAINED_WRITE, ADMIN)
_CHANGES = ("POST", "PUT", "DELETE", "PATCH")
_HERE, _ELSEWHERE = "127.0.0.1", "192.0.2.7"


class KeysInMemory(Keys):
    """A key of each scope; its secret is its name."""

    def __init__(self) -> None:
        self._now = lambda: 0
        self._keys = {
            scope.name: StoredKey(
                name=scope.name, key=scope.name, scopes=frozenset({scope.value}), created_by="", created_at=0,
                secret_hash=sha256(f"{scope.name}:{scope.name}".encode()).hexdigest(), expires_at=None,
            )
            for scope in _SCOPES
        }  # fmt: skip


class Listener:
    """The real routes with handlers that only answer, behind what finds out who calls."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        def reached(_call: Call) -> Deferred[Answer]:
            return succeed(Answer())

        self.table = RoutingTable([evolve(route, handler=reached, finishes=False) for route in routes])
        self.sessions = DashboardSessions(lambda: self.seconds)
        self.seconds = 0.0
        self.banned = False
        identities = Identities(
            Guards(lambda: ()), KeysInMemory(), self.sessions, UncountedFailures, lambda _peer, _name: None,
            lambda _peer: self.banned,
        )  # fmt: skip
        self._line = HTTPClient(self.table.answer)
        self._line.site.identify = identities.identify
        self._line.site.goes_on = identities.goes_on

    def ask(self, method: str, target: str, peer: str, *lines: str) -> int:
        """Return the status of a request."""
        self._line.transport.peerAddr = IPv4Address("TCP", peer, 40000)
        return self._line.ask(f"{method} {target} HTTP/1.1", *lines)[0]

    def cookie(self) -> tuple[str, str]:
        """Return the headers of a session of the dashboard: the cookie, and the token that changes need beside it."""
        caller = Caller("link", None, frozenset({ADMIN}), Via.SESSION)
        cookie, session = self.sessions.begin(caller, None)
        return f"Cookie: holdfast-18083={cookie}", f"X-CSRF-Token: {session.csrf}"


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Route, ...]:
    """The routes of a whole broker, which is built but not started."""
    folder = tmp_path_factory.mktemp("broker")
    config = default().override([], str(folder / "data"), None, allow_anonymous=True, cwd=folder)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    control: Any = broker._control
    table: RoutingTable = control._site.most_bytes.__self__
    return table.routes


@pytest.fixture(scope="module")
def listener(routes: tuple[Route, ...]) -> Listener:
    return Listener(routes)


@frozen
class Asking:
    """A caller: the address, the headers, and the status of each call."""

    peer: str
    lines: tuple[str, ...]

    def statuses(self, listener: Listener) -> dict[tuple[str, str], int]:
        """Ask for every route."""
        return {
            (route.method, route.path): listener.ask(route.method, _target(route), self.peer, *self.lines)
            for route in listener.table.routes
        }


def _target(route: Route) -> str:
    """Return a target with a value for each argument that must be there."""
    path = route.path
    for each in route.in_path:
        path = path.replace(f"{{{each.name}}}", "x")
    required = "&".join(f"{each.name}=x" for each in route.in_query if each.required)
    return f"{path}?{required}" if required else path


def _expected(*, without: int, granted: frozenset[Scope] = frozenset(), here: bool = False) -> dict[Any, int]:
    """Return the statuses of a caller with some scopes; ``without`` is that of calls whose scope is missing."""
    expected = {}
    for call, need in NEEDS.items():
        if need == CONTROL:
            expected[call] = 403
        else:
            scope = READ if need == LOOPBACK else need
            may = scope in {OPEN, *granted} or ADMIN in granted or (here and need == LOOPBACK)
            expected[call] = 200 if may else without
    return expected


HOST, LOCAL = "Host: 192.0.2.1:18083", "Host: localhost:18083"
NOBODY = _expected(without=401)


def test_the_table_has_every_route(routes: tuple[Route, ...]) -> None:
    assert sorted((route.method, route.path) for route in routes) == sorted(NEEDS)


def test_the_calls_that_change_the_database_are_known(routes: tuple[Route, ...]) -> None:
    """While it is away, all others go on: operators log in, ban, disconnect and configure without it."""
    assert {(route.method, route.path) for route in routes if route.stores} == STORES


@pytest.mark.parametrize("scheme", ["bearer", "bearer with a dot", "basic"])
@pytest.mark.parametrize("scope", _SCOPES)
def test_a_key_may_what_its_scope_says(listener: Listener, scope: Scope, scheme: str) -> None:
    """The scope admin includes all others; no other includes one. A key needs no place and no origin."""
    name = scope.name
    credentials = {
        "bearer": f"Bearer {name}:{name}",
        "bearer with a dot": f"Bearer {name}.{name}",
        "basic": f"Basic {b64encode(f'{name}:{name}'.encode()).decode()}",
    }[scheme]
    caller = Asking(_ELSEWHERE, (HOST, f"Authorization: {credentials}"))
    assert caller.statuses(listener) == _expected(without=403, granted=frozenset({scope}))


def test_nobody_may_make_open_calls_only(listener: Listener) -> None:
    assert Asking(_ELSEWHERE, (HOST,)).statuses(listener) == NOBODY


def test_this_machine_may_read_metrics_too(listener: Listener) -> None:
    """But not what a proxy on this machine sends on, nor what asks for another name."""
    assert Asking(_HERE, (LOCAL,)).statuses(listener) == _expected(without=401, here=True)
    assert Asking(_HERE, (LOCAL, "X-Forwarded-For: 192.0.2.9")).statuses(listener) == NOBODY
    assert Asking(_HERE, (HOST,)).statuses(listener) == NOBODY
    assert Asking(_ELSEWHERE, (LOCAL,)).statuses(listener) == NOBODY


@pytest.mark.parametrize(
    "authorization",
    ["Bearer revoked:secret", "Bearer ADMIN:wrong", "Bearer ADMIN", "Basic " + b64encode(b"ADMIN:wrong").decode(),
     "Digest x", "Bearer ADMIN:ADMIN, Bearer ADMIN:ADMIN"],
)  # fmt: skip
def test_a_key_that_does_not_count_makes_no_call_at_all(listener: Listener, authorization: str) -> None:
    """Also no open one, and not with a session of the dashboard beside it."""
    for lines in ((), listener.cookie()):
        caller = Asking(_HERE, (LOCAL, f"Authorization: {authorization}", *lines))
        statuses = caller.statuses(listener)
        assert statuses.pop(("GET", CLIENTS_PATH)) == 200  # there, it would be that of an MQTT client
        assert set(statuses.values()) == {401}


def test_a_session_may_do_everything_with_its_token(listener: Listener) -> None:
    everything = _expected(without=403, granted=frozenset({ADMIN}))
    cookie, token = listener.cookie()
    assert Asking(_ELSEWHERE, (HOST, cookie, token)).statuses(listener) == everything
    assert Asking(_ELSEWHERE, (HOST, cookie, token, "Origin: http://192.0.2.1:18083")).statuses(listener) == everything


def test_a_cookie_alone_changes_nothing(listener: Listener) -> None:
    """Another page can make a browser send the cookie, but does not know the token."""
    cookie, _ = listener.cookie()
    _, other = listener.cookie()
    everything = _expected(without=403, granted=frozenset({ADMIN}))
    expected = {call: 403 if call[0] in _CHANGES else status for call, status in everything.items()}
    for lines in ((), ("X-CSRF-Token: ",), ("X-CSRF-Token: x",), (other,)):
        assert Asking(_ELSEWHERE, (HOST, cookie, *lines)).statuses(listener) == expected


@pytest.mark.parametrize("origin", ["http://192.0.2.1:3000", "https://evil.example", "null", "http://192.0.2.1"])
def test_pages_of_other_origins_use_no_session_and_change_nothing(listener: Listener, origin: str) -> None:
    """Not even with the token of the session. Without a cookie or a change there is nothing to protect."""
    caller = Asking(_ELSEWHERE, (HOST, *listener.cookie(), f"Origin: {origin}"))
    refused = caller.statuses(listener)
    assert set(refused.values()) == {403}
    statuses = Asking(_ELSEWHERE, (HOST, f"Origin: {origin}")).statuses(listener)
    assert statuses == {call: 403 if call[0] in _CHANGES else status for call, status in NOBODY.items()}


def test_a_session_that_is_over_or_of_another_port_is_nobody(listener: Listener) -> None:
    """A cookie of a broker beside this one has another name."""
    cookie, token = listener.cookie()
    other = cookie.replace("-18083=", "-28083=")
    assert Asking(_ELSEWHERE, (HOST, other, token)).statuses(listener) == NOBODY
    listener.seconds += 8 * 3600 + 1
    assert Asking(_ELSEWHERE, (HOST, cookie, token)).statuses(listener) == NOBODY


def test_banned_addresses_and_foreign_hosts_make_no_call(listener: Listener) -> None:
    """Whatever they prove."""
    key = "Authorization: Bearer ADMIN:ADMIN"
    assert set(Asking(_ELSEWHERE, ("Host: evil.example", key)).statuses(listener).values()) == {421}
    assert set(Asking(_ELSEWHERE, ("Host: evil@localhost", key)).statuses(listener).values()) == {400}
    listener.banned = True
    try:
        assert set(Asking(_ELSEWHERE, (HOST, key)).statuses(listener).values()) == {403}
    finally:
        listener.banned = False


def test_the_control_socket_may_do_everything(listener: Listener) -> None:
    """Its users are those of the data directory."""
    line = HTTPClient(listener.table.answer)
    for route in listener.table.routes:
        assert line.ask(f"{route.method} {_target(route)} HTTP/1.1")[0] == 200, route.path


def test_other_methods_of_these_paths_are_no_calls(listener: Listener) -> None:
    """HEAD is a GET without its body. Nothing else reaches a handler."""
    key = "Authorization: Bearer ADMIN:ADMIN"
    for path in {path for _, path in NEEDS}:
        known = {method for method, each in NEEDS if each == path}
        (route, *_) = [each for each in listener.table.routes if each.path == path]
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW"} - known:
            assert listener.ask(method, _target(route), _ELSEWHERE, HOST, key) == 405, (method, path)
