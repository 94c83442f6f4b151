"""Who calls: keys, sessions, and what failed logins cost. The whole way through the table of routes."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.admin.api.logins import LOGIN_PATH, LOGOUT_PATH, SESSION_PATH, LoginAPI, VerifyUser
from holdfast.admin.call import Answer, Call, Caller, Head, RefusedCall, Scope, Via, answer
from holdfast.admin.callers import DashboardSessions, Links, this_operator
from holdfast.admin.http.identities import LONGEST_DELAY, Identities
from holdfast.admin.http.request import Guards
from holdfast.admin.routing import Route, RoutingTable
from holdfast.identity.addresses import Peer
from holdfast.identity.api_keys import Keys, StoredKey
from holdfast.identity.failed_logins import UncountedFailures
from holdfast.identity.hashes import Busy
from tests.storage.doubles import result_of

ELSEWHERE = Peer(ip_address("192.0.2.7"), 5)
KEY, SECRET = "hf0", "s3cret"
STORED = StoredKey(
    name="grafana", key=KEY, secret_hash=sha256(f"{KEY}:{SECRET}".encode()).hexdigest(), scopes=frozenset({"read"}),
    created_by="", created_at=0, expires_at=None,
)  # fmt: skip


class KnownKeys(Keys):
    """Keys without a database."""

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {KEY: STORED}
        self._now = lambda: 0

    def change(self, **fields: Any) -> None:
        self._keys = {KEY: evolve(STORED, **fields)}

    def revoke(self) -> None:
        self._keys = {}


class CountedFailures(UncountedFailures):
    """Counts failures; each one waits a second longer."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str | None] = []

    def failed(self, peer: Peer, username: str | None) -> float:
        self.names.append(username)
        return float(len(self.names))

    def succeeded(self, peer: Peer, username: str) -> None:
        self.names = [name for name in self.names if name != username]


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


def change(call: Call) -> Deferred[Answer]:
    """Answer with the caller's name."""
    return succeed(answer({"name": call.caller.name}))


class Door:
    """The listener of an API, without a socket."""

    def __init__(self) -> None:
        clock = Clock()
        self.told: list[str] = []
        self.audit: list[tuple[str, int, Any]] = []
        self.failures = CountedFailures()
        self.sessions = DashboardSessions(clock.seconds)
        self.keys = KnownKeys()
        self.verify: VerifyUser | None = None
        self.banned = False
        self.identities = Identities(
            Guards(lambda: ()),
            self.keys,
            self.sessions,
            lambda: self.failures,
            lambda _, name: self.told.append(name),
            lambda _: self.banned,
        )
        self.logins = LoginAPI(
            self.sessions, Links(clock.seconds), self.identities, verify=lambda: self.verify,
            url=lambda: "http://127.0.0.1:18083/", now=lambda: 1_800_000_000_000,
        )  # fmt: skip
        routes = [
            Route(method=method, path="/change", handler=change, scope=scope, summary="x")
            for method, scope in (("GET", Scope.READ), ("PUT", Scope.ADMIN))
        ]
        self.table = RoutingTable([*self.logins.routes, *routes], self._witness)

    def _witness(self, call: Call, told: Answer) -> None:
        self.audit.append((call.caller.name, told.status, dict(told.note)))

    def ask(self, method: str, path: str, body: object = None, **fields: Any) -> tuple[int, Any, Answer]:
        """Make a request; return status, content and the answer."""
        head = Head(**{"method": method, "peer": ELSEWHERE, "host": "192.0.2.1", **fields})
        data = b"" if body is None else json.dumps(body).encode()
        try:
            caller = self.identities.identify(None, head)
        except RefusedCall as refused:
            found = refused.answer()
        else:
            found = result_of(self.table.answer(Call(method, path, {}, data, caller, head=head)))
        return found.status, json.loads(found.body) if found.body else None, found

    def token(self) -> str:
        link = self.logins.new_link()
        assert link is not None
        return link.partition("#token=")[2]

    def log_in(self, **fields: Any) -> dict[str, str]:
        """Log in by a link; return what a page of the dashboard sends with a change."""
        status, content, found = self.ask("POST", LOGIN_PATH, {"token": self.token()}, **fields)
        assert status == 200
        return {"cookie": cookie_of(found).partition(";")[0], "csrf": content["csrf_token"]}


def cookie_of(found: Answer) -> str:
    name, _, rest = dict(found.headers)["Set-Cookie"].partition("=")
    assert name in ("holdfast", "__Host-holdfast")
    return rest


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize(
    "header", [f"Bearer {KEY}:{SECRET}", f"Bearer {KEY}.{SECRET}", f"bearer  {KEY}:{SECRET}", basic(f"{KEY}:{SECRET}")]
)
def test_a_key_and_its_secret_may_be_sent_in_three_ways(door: Door, header: str) -> None:
    assert door.ask("GET", "/change", authorization=header)[:2] == (200, {"name": "key grafana"})
    status, problem, _ = door.ask("PUT", "/change", authorization=header)
    assert (status, problem["scope"]) == (403, "admin")
    assert door.audit == [("key grafana", 403, {})]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", f"Bearer {KEY}", f"Basic {KEY}:{SECRET}", "Basic !!!", basic(KEY), "Digest x", f"Bearer :{SECRET}",
     basic(f"{KEY}:"), "Basic " + b64encode(b"\xff:\xff").decode()],
)  # fmt: skip
def test_a_header_that_has_no_key_is_explained(door: Door, header: str) -> None:
    status, problem, found = door.ask("GET", "/change", authorization=header)
    assert status == 401
    assert "Bearer KEY:SECRET" in problem["message"]
    assert "WWW-Authenticate" in dict(found.headers)


def test_wrong_secrets_count_as_failed_logins_and_wait_longer_each_time(door: Door) -> None:
    delays = []
    for _ in range(20):
        with pytest.raises(RefusedCall) as refused:
            door.identities.identify(
                None, Head(method="GET", peer=ELSEWHERE, host="192.0.2.1", authorization=f"Bearer {KEY}:wrong")
            )
        delays.append(refused.value.delay)
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (1.0, LONGEST_DELAY)
    assert door.told == [f"key {KEY}"] * 20
    assert door.ask("GET", "/change", authorization=f"Bearer {KEY}:{SECRET}")[0] == 200
    assert door.failures.names == []


def test_this_machine_alone_gives_no_rights(door: Door) -> None:
    here = Peer(ip_address("127.0.0.1"))
    status, problem, _ = door.ask("GET", "/change", peer=here, host="127.0.0.1")
    assert (status, problem["code"]) == (401, "UNAUTHORIZED")
    assert door.ask("GET", SESSION_PATH, peer=here, host="127.0.0.1")[0] == 401


def test_a_link_logs_in_once_and_the_session_may_do_everything(door: Door) -> None:
    token = door.token()
    status, content, found = door.ask("POST", LOGIN_PATH, {"token": token})
    assert (status, content["name"], content["scopes"]) == (200, "link", ["admin"])
    assert content["expires_at"] == "2027-01-15T16:00:00Z"
    assert cookie_of(found).partition("; ")[2] == "Path=/; HttpOnly; SameSite=Strict"
    cookie = cookie_of(found).partition(";")[0]
    assert door.ask("GET", "/change", cookie=cookie)[:2] == (200, {"name": "link"})
    status, told, _ = door.ask("GET", SESSION_PATH, cookie=cookie)
    assert (status, told["csrf_token"]) == (200, content["csrf_token"])
    assert door.ask("POST", LOGIN_PATH, {"token": token})[0] == 401
    assert door.audit == [("", 200, {"operator": "link"})]


def test_the_cookie_stays_on_tls(door: Door) -> None:
    """Also if it is a proxy that has TLS. Browsers accept __Host- over TLS, from this host only."""
    for fields in ({"secure": True}, {"origin": "https://192.0.2.1"}):
        _, _, found = door.ask("POST", LOGIN_PATH, {"token": door.token()}, **fields)
        assert dict(found.headers)["Set-Cookie"].startswith("__Host-holdfast=")
        assert cookie_of(found).partition("; ")[2] == "Path=/; HttpOnly; SameSite=Strict; Secure"


def test_a_long_answer_goes_on_as_long_as_its_caller_counts(door: Door) -> None:
    """With a key until it is revoked or banned, with a cookie until the session ends. To ask is no login."""
    cookie = door.log_in()["cookie"]
    heads = [
        Head(method="GET", peer=ELSEWHERE, host="192.0.2.1", authorization=f"Bearer {KEY}:{SECRET}"),
        Head(method="GET", peer=ELSEWHERE, host="192.0.2.1", cookie=cookie),
    ]
    callers = [door.identities.identify(None, head) for head in heads]

    def going_on() -> list[bool]:
        return [door.identities.goes_on(None, head, who) for head, who in zip(heads, callers, strict=True)]

    assert going_on() == [True, True]
    door.banned = True
    assert going_on() == [False, False]
    door.banned = False
    door.keys.change(scopes=frozenset({"publish"}))
    assert going_on() == [False, True]
    door.keys.change(scopes=STORED.scopes)
    assert going_on() == [True, True]
    door.keys.revoke()
    door.sessions.end(cookie)
    assert going_on() == [False, False]
    assert (door.told, door.failures.names) == ([], [])


def test_a_change_with_a_cookie_needs_the_token_of_its_session(door: Door) -> None:
    """A page of another origin can have neither the token nor the origin."""
    session, other = door.log_in(), door.log_in()
    assert door.ask("PUT", "/change", **session)[0] == 200
    for wrong in (None, "", other["csrf"], "\ud800"):
        status, problem, _ = door.ask("PUT", "/change", cookie=session["cookie"], csrf=wrong)
        assert (status, problem["field"]) == (403, "X-CSRF-Token")
    assert door.ask("PUT", "/change", **session, origin="http://evil.example")[0] == 403
    assert door.ask("PUT", "/change", **session, origin="http://192.0.2.1")[0] == 200


def test_a_caller_without_a_session_learns_whether_a_password_can_log_in(door: Door) -> None:
    """The dashboard then shows the form, or only how to get a link."""
    assert door.ask("GET", SESSION_PATH)[1]["password_login"] is False
    door.verify = lambda *_: succeed(True)
    assert door.ask("GET", SESSION_PATH)[1]["password_login"] is True


def test_logging_out_ends_the_session(door: Door) -> None:
    session = door.log_in()
    status, _, found = door.ask("POST", LOGOUT_PATH, **session)
    assert status == 204
    assert "Max-Age=0" in cookie_of(found)
    assert door.ask("GET", "/change", **session)[0] == 401
    assert door.ask("POST", LOGOUT_PATH)[0] == 204


def test_another_login_ends_the_session_before(door: Door) -> None:
    session = door.log_in()
    door.log_in(**session)
    assert door.ask("GET", "/change", **session)[0] == 401
    assert len(door.sessions) == 1


def test_users_log_in_by_their_passwords_if_a_group_is_named(door: Door) -> None:
    login = {"username": "alice", "password": "right"}
    assert door.ask("POST", LOGIN_PATH, login)[0] == 403
    door.verify = lambda username, password: succeed((username, password) == ("alice", b"right"))
    status, content, _ = door.ask("POST", LOGIN_PATH, login)
    assert (status, content["name"]) == (200, "user alice via dashboard")
    status, _, _ = door.ask("POST", LOGIN_PATH, {**login, "password": "wrong"})
    assert status == 401
    assert (door.told, door.failures.names) == (["alice"], ["alice"])
    assert [name for name, _, note in door.audit if note] == [""]
    assert door.audit[-1][2] == {"operator": "user alice via dashboard"}


def test_the_answer_to_a_wrong_password_or_link_waits(door: Door) -> None:
    door.verify = lambda _username, _password: succeed(False)
    for body in ({"username": "alice", "password": "x"}, {"token": "x"}):
        delays = [door.ask("POST", LOGIN_PATH, body)[2].delay for _ in range(2)]
        assert 0 < delays[0] < delays[1]


def test_a_connection_from_an_address_that_was_banned_meanwhile_makes_no_calls(door: Door) -> None:
    """Whoever keeps a connection open could guess on otherwise. A guess that is right gets the same answer."""
    session = door.log_in()
    verified: Deferred[bool] = Deferred()
    door.verify = lambda _username, _password: verified
    head = Head(method="POST", peer=ELSEWHERE, host="192.0.2.1")
    body = b'{"username": "alice", "password": "right"}'
    answering = door.table.answer(Call("POST", LOGIN_PATH, {}, body, door.identities.identify(None, head), head=head))
    door.banned = True
    verified.callback(True)
    assert result_of(answering).status == 403
    assert door.ask("GET", "/change", **session)[0] == 403
    assert door.ask("GET", "/change", authorization=f"Bearer {KEY}:{SECRET}")[1]["code"] == "BANNED"
    assert door.failures.names == []


def test_a_login_that_has_to_wait_for_others_is_refused(door: Door) -> None:
    def busy(_username: str, _password: bytes) -> Deferred[bool]:
        raise Busy("200 passwords wait")

    door.verify = busy
    assert door.ask("POST", LOGIN_PATH, {"username": "alice", "password": "x"})[0] == 503
    assert door.failures.names == []


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"token": 1}, {"token": "x", "more": 1}, {"username": "a"}, {"username": "", "password": "x"},
     {"username": 1, "password": "x"}, {"username": "a", "password": ["x"]}, {"token": "\ud800"}],
)  # fmt: skip
def test_what_is_no_login_is_refused_and_not_audited(door: Door, body: object) -> None:
    """A stranger must not fill the audit log."""
    assert door.ask("POST", LOGIN_PATH, body)[0] in (400, 401)
    assert door.audit == []


def test_links_are_made_over_the_control_socket_only(door: Door) -> None:
    path = "/api/v5/dashboard/link"
    assert door.ask("POST", path, **door.log_in())[0] == 403
    found: Answer = result_of(door.table.answer(Call("POST", path, {}, b"", this_operator())))
    told = json.loads(found.body)
    assert told["url"].startswith("http://127.0.0.1:18083/#token=")
    assert told["expires_at"] == "2027-01-15T08:15:00Z"


def test_a_key_may_do_what_its_scopes_say() -> None:
    for scope in Scope:
        caller = Caller("key a", None, frozenset({scope}), Via.KEY)
        allowed = {each for each in Scope if caller.may(each)}
        assert allowed == (set(Scope) if scope is Scope.ADMIN else {Scope.OPEN, scope})
    assert evolve(STORED, expires_at=5).is_over(5)


@given(st.text(max_size=60), st.text(max_size=40) | st.none(), st.text(max_size=40) | st.none())
def test_no_header_causes_an_internal_error(authorization: str, cookie: str | None, csrf: str | None) -> None:
    status, _, _ = Door().ask("PUT", "/change", authorization=authorization, cookie=cookie, csrf=csrf)
    assert status == 401
