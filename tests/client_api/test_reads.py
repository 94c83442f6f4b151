"""``GET /api/v5/retained``: MQTT clients over HTTP, with the rights of a CONNECT and a SUBSCRIBE."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.admin.address import CLIENTS_PATH
from holdfast.admin.call import Answer, Call, Head
from holdfast.admin.callers import DashboardSessions
from holdfast.admin.http.identities import Identities
from holdfast.admin.http.request import Guards
from holdfast.admin.routing import RoutingTable
from holdfast.changes.recent import LONGEST_PAYLOAD, StoredChange, expiry_of
from holdfast.client_api.logins import ClientLogins
from holdfast.client_api.reads import ClientReads
from holdfast.core.messages import ChangeKind
from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import Credentials, Denied, IAuthenticator, Principal
from holdfast.sessions.limits import Limits
from holdfast.wire import ReasonCode
from tests.admin.events.test_streams import Changes
from tests.admin.test_logins import CountedFailures, KnownKeys
from tests.authorizers import Permissions
from tests.doubles import MemoryBroker
from tests.storage.doubles import result_of

PEER = Peer(ip_address("192.0.2.7"), 5)
STREAM = "text/event-stream"


@implementer(IAuthenticator)
class People:
    """Knows alice by password, bob by a token, and admits guests."""

    def __init__(self) -> None:
        self.seen: list[Credentials] = []
        self.away = False

    def authenticate(self, credentials: Credentials) -> Principal | Denied:
        self.seen.append(credentials)
        if self.away:
            return Denied(ReasonCode.SERVER_UNAVAILABLE, "the service is away")
        if credentials.username == "alice" and credentials.password == b"pa:ss":
            return Principal("", "alice", expires_at=None)
        if credentials.username is None and credentials.password == b"a.b.c":
            return Principal("", "bob", expires_at=None)
        if credentials.username is None and credentials.password is None:
            return Principal("", None)
        return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong")


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


ALICE = basic("alice:pa:ss")


class Desk:
    """A broker in memory, and the call of clients."""

    def __init__(self, limits: Limits | None = None, listener: str = "default", stores: bool = True) -> None:
        self.people, self.permissions, self.failures = People(), Permissions(), CountedFailures()
        self.broker = MemoryBroker(
            authenticator=self.people, authorizer=self.permissions, failures=self.failures, limits=limits
        )
        self.told: list[str] = []
        parts = self.broker.session_parts.broker_parts
        self.parts = parts
        identities = Identities(
            Guards(lambda: ()), KnownKeys(), DashboardSessions(self.broker.clock.seconds), lambda: parts.failures,
            lambda _peer, name: self.told.append(name), parts.bans.has_peer,
        )  # fmt: skip
        self.changes = Changes()
        changes: Any = self.changes if stores else None
        logins = ClientLogins(parts, identities, lambda: listener, lambda _: self.broker.limits)
        self.calls = ClientReads(
            logins, self.broker.retained, parts.questions, changes, self.broker.clock, most_of_one=2, most=3
        )
        self.table = RoutingTable(self.calls.routes)
        self.proven = 0

    def retain(self, topic: str, payload: bytes = b"x") -> None:
        self.broker.client("p").publish(topic, payload, retain=True)

    def answer(
        self, authorization: str | None = ALICE, accept: str = "", etags: str | None = None, **arguments: str
    ) -> Answer:
        head = Head(method="GET", path=CLIENTS_PATH, peer=PEER, authorization=authorization, etags=etags)
        call = Call("GET", CLIENTS_PATH, arguments, accept=accept, head=head, prove=self._prove)
        found: Answer = self.wait(self.table.answer(call))
        return found

    def ask(self, authorization: str | None = ALICE, **arguments: str) -> Any:
        return json.loads(self.answer(authorization, **arguments).body)

    def wait(self, answering: Deferred[Any]) -> Any:
        for _ in range(20):
            if answering.called:
                break
            self.broker.settle()
            self.broker.clock.advance(0.05)
        return result_of(answering)

    def _prove(self) -> None:
        self.proven += 1


class Stream:
    """Reads the events of one stream."""

    def __init__(self, desk: Desk, answer: Answer) -> None:
        assert (answer.status, answer.content_type) == (200, STREAM), answer
        self.desk = desk
        self.answer = answer

    def piece(self) -> bytes:
        assert self.answer.more is not None
        found: bytes = self.desk.wait(self.answer.more())
        return found

    def events(self) -> list[tuple[str, Any]]:
        """Return the events of the next piece."""
        found = []
        for block in self.piece().decode().split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.split("\n") if ": " in line)
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    def stop(self) -> None:
        assert self.answer.stopped is not None
        self.answer.stopped()


def change(topic: str, revision: int, payload: bytes = b"new", kind: ChangeKind = ChangeKind.SET) -> StoredChange:
    return StoredChange(topic, revision, kind, 0, size=len(payload), payload=payload, client_id="p")


def topics(events: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, data.get("topic", "")) for name, data in events]


# --- who


@pytest.mark.parametrize(
    ("authorization", "user", "password"),
    [(ALICE, "alice", b"pa:ss"), ("Bearer a.b.c", None, b"a.b.c"), (None, None, None)],
)
def test_the_credentials_are_those_of_a_connect(
    authorization: str | None, user: str | None, password: bytes | None
) -> None:
    """They are judged for the configured listener and the address of the client, without a Client Identifier."""
    desk = Desk()
    desk.retain("a")
    assert desk.ask(authorization, topic="a")["topic"] == "a"
    (seen,) = desk.people.seen[-1:]
    assert (seen.username, seen.password, seen.listener, seen.peer, seen.client_id) == (
        user, password, "default", PEER, "",
    )  # fmt: skip
    assert desk.proven == 1


def test_wrong_passwords_count_as_failed_logins_and_wait() -> None:
    desk = Desk()
    refused = desk.answer(basic("alice:no"), topic="a")
    assert (refused.status, refused.delay) == (401, 1.0)
    assert b"alice" not in refused.body
    assert (desk.failures.names, desk.told, desk.proven) == (["alice"], ["alice"], 0)
    assert desk.answer(basic("alice:no"), topic="a").delay == 2.0
    assert desk.answer(ALICE, topic="a").status == 404
    assert desk.failures.names == []


def test_a_guest_takes_no_failure_back() -> None:
    desk = Desk()
    desk.answer("Bearer x.y.z", topic="a")
    desk.answer(None, topic="a")
    assert desk.failures.names == [""]


@pytest.mark.parametrize("header", ["Digest x", "Basic !", f"Basic {b64encode(b'alice').decode()}", "Bearer ", ""])
def test_other_headers_are_refused_without_a_login(header: str) -> None:
    desk = Desk()
    asked = len(desk.people.seen)
    assert desk.answer(header, topic="a").status == 401
    assert len(desk.people.seen) == asked


def test_what_is_no_verdict_is_no_failed_login() -> None:
    desk = Desk()
    desk.people.away = True
    assert desk.answer(topic="a").status == 503
    assert desk.failures.names == []


def test_without_a_listener_the_call_is_off() -> None:
    desk = Desk(listener="")
    assert desk.answer(topic="a").status == 404
    assert desk.people.seen == []


def test_banned_users_and_short_memory_refuse() -> None:
    desk = Desk()
    desk.parts.bans = _Bans("alice")  # type: ignore[assignment]
    assert desk.answer(topic="a").status == 403
    assert desk.answer("Bearer a.b.c", topic="a").status == 404


@pytest.mark.parametrize("password", ["pa:ss", "no"])
def test_of_many_guesses_at_one_moment_none_is_answered_after_the_ban(password: str) -> None:
    """Right credentials are told from wrong ones by nothing: the address was banned while they were verified."""
    desk = Desk()
    verdict: Deferred[Any] = Deferred()
    judge = desk.people.authenticate
    desk.people.authenticate = lambda credentials: verdict.addCallback(lambda _: judge(credentials))  # type: ignore[assignment,return-value]
    head = Head(method="GET", path=CLIENTS_PATH, peer=PEER, authorization=basic(f"alice:{password}"))
    answering = desk.table.answer(Call("GET", CLIENTS_PATH, {"topic": "a"}, head=head))
    desk.parts.bans = _Bans("", address=True)  # type: ignore[assignment]
    verdict.callback(None)
    refused = desk.wait(answering)
    assert (refused.status, json.loads(refused.body)["code"]) == (403, "BANNED")
    assert desk.failures.names == []


class _Bans:
    """Bans one user, or every address."""

    def __init__(self, user: str, address: bool = False) -> None:
        self._user = user
        self._address = address

    def has_peer(self, _peer: Peer) -> bool:
        return self._address

    def has_user(self, username: str | None) -> bool:
        return username == self._user


# --- values and pages


def test_one_value_as_json_and_as_bytes() -> None:
    """A caller that has the value already gets 304. The publisher is not told."""
    desk = Desk()
    desk.retain("plant/1", b"21.5")
    found = desk.ask(topic="plant/1")
    assert (found["topic"], b64decode(found["payload"]), found["qos"]) == ("plant/1", b"21.5", 0)
    assert not {"from_clientid", "from_username"} & set(found)
    answer = desk.answer(topic="plant/1", accept="application/octet-stream")
    assert (answer.body, answer.content_type) == (b"21.5", "application/octet-stream")
    assert desk.answer(topic="plant/1", etags=dict(answer.headers)["ETag"]).status == 304
    assert desk.answer(topic="plant/2").status == 404


def test_a_filter_is_read_in_pages() -> None:
    desk = Desk()
    for number in range(5):
        desk.retain(f"t/{number}")
    first = desk.ask(filter="t/+", limit="3")
    second = desk.ask(filter="t/+", limit="3", after=first["after"])
    assert [each["topic"] for each in first["messages"] + second["messages"]] == [f"t/{n}" for n in range(5)]
    assert second["after"] is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "topic"), ({"topic": "a", "filter": "b"}, "topic"), ({"topic": "a/+"}, "topic"),
        ({"filter": "a/#/b"}, "filter"), ({"filter": "$share/g/a"}, "filter"), ({"filter": "$queue/a"}, "filter"),
        ({"filter": "$SYS/#"}, "filter"), ({"topic": "$history/at/1/a"}, "topic"), ({"filter": "a/b/c/d"}, "filter"),
        ({"filter": "#"}, "filter"), ({"filter": "a/#", "after": "wrong"}, "after"),
        ({"filter": "a/#", "limit": "1001"}, "limit"),
    ],
)  # fmt: skip
def test_bad_requests_name_their_field(arguments: dict[str, str], field: str) -> None:
    """The limits of the zone hold: levels, and levels before a wildcard."""
    refused = Desk(Limits(max_topic_levels=3, min_replay_levels=1)).ask(**arguments)
    assert (refused["status"], refused["field"]) == (400, field)


def test_permissions_are_those_of_subscribe_and_of_each_delivery() -> None:
    desk = Desk()
    for topic in ("open/a", "open/secret", "shut/a"):
        desk.retain(topic)
    desk.permissions.deny("subscribe", "shut/#")
    desk.permissions.deny("receive", "open/secret")
    assert desk.answer(filter="shut/#").status == 403
    assert desk.answer(topic="shut/a").status == 403
    assert desk.broker.denied[-1][1:] == ("subscribe", "shut/a")
    assert [each["topic"] for each in desk.ask(filter="open/#")["messages"]] == ["open/a"]
    assert desk.answer(topic="open/secret").status == 404


# --- streams


def begun(desk: Desk, **arguments: str) -> Stream:
    return Stream(desk, desk.answer(accept=STREAM, **arguments))


def test_a_stream_begins_with_the_retained_messages_and_goes_on_live() -> None:
    desk = Desk()
    desk.retain("t/1", b"old")
    stream = begun(desk, filter="t/#")
    events = stream.events()
    assert topics(events) == [("retained", "t/1"), ("ready", "")]
    assert events[1][1] == {"count": 1}
    later = 1 << 62
    desk.changes.change(change("t/1", later, b"new"), expiry_of("t/2", 0, later + 1))
    (first, second) = stream.events()
    assert (first[0], b64decode(first[1]["payload"]), first[1]["revision"]) == ("retained", b"new", str(later))
    assert (second[0], second[1]["topic"], second[1]["reason"]) == ("cleared", "t/2", "expire")
    assert set(first[1]) == set(events[0][1])
    stream.stop()
    assert (desk.changes.closed, desk.calls.open) == (1, 0)


def test_an_older_change_never_follows_a_newer_listed_value() -> None:
    """The change of a listed message may be reported after the list: it is left out, and so is any older one."""
    desk = Desk()
    desk.retain("t/1", b"listed")
    stream = begun(desk, topic="t/1")
    ((_, listed), _) = stream.events()
    revision = int(listed["revision"])
    desk.changes.change(change("t/1", revision - 1), change("t/1", revision), change("t/1", revision + 1, b"next"))
    ((_, told),) = stream.events()
    assert b64decode(told["payload"]) == b"next"


def test_a_long_payload_is_read_when_it_is_told() -> None:
    desk = Desk()
    stream = begun(desk, filter="t/#")
    assert topics(stream.events()) == [("ready", "")]
    payload = b"x" * (LONGEST_PAYLOAD + 1)
    desk.retain("t/long", payload)
    desk.changes.change(change("t/long", 1 << 62, payload))
    ((_, told),) = stream.events()
    assert b64decode(told["payload"]) == payload


def test_changes_keep_to_permissions() -> None:
    desk = Desk()
    desk.permissions.deny("receive", "t/secret")
    stream = begun(desk, filter="t/#")
    stream.events()
    later = 1 << 62
    desk.changes.change(
        change("t/secret", later), change("t/secret", later + 1, b"", ChangeKind.CLEAR), change("t/a", later + 2)
    )
    assert topics(stream.events()) == [("retained", "t/a")]


def _revoke(desk: Desk) -> None:
    desk.permissions.deny("subscribe", "t/#")
    desk.permissions.deny("receive", "t/#")


def _ban(desk: Desk) -> None:
    desk.parts.bans = _Bans("alice")  # type: ignore[assignment]


def _dismiss(desk: Desk) -> None:
    desk.parts.registry.dismissals.dismiss(lambda principal: True, ReasonCode.NOT_AUTHORIZED, "the user was removed")


def _lose(desk: Desk) -> None:
    desk.changes.change(reset="there were more changes than could be kept for you")


@pytest.mark.parametrize(
    ("happens", "reason"),
    [(_revoke, "subscribe"), (_ban, "banned"), (_dismiss, "removed"), (_lose, "changes are missing")],
)
def test_a_stream_ends_and_says_why(happens: Callable[[Desk], None], reason: str) -> None:
    """Also that of a slow reader, for whom changes are missing: nothing is queued for it."""
    desk = Desk()
    stream = begun(desk, filter="t/#")
    stream.events()
    happens(desk)
    ((name, data),) = stream.events()
    assert name == "end"
    assert reason in data["reason"]
    assert stream.piece() == b""


def test_a_quiet_stream_pings() -> None:
    desk = Desk()
    stream = begun(desk, filter="t/#")
    stream.events()
    answering = stream.answer.more
    assert answering is not None
    piece = answering()
    for _ in range(16):
        desk.broker.clock.advance(1)
    assert result_of(piece).startswith(b": ping\n")


def test_streams_are_bounded() -> None:
    """For one user, and in all. A stream that has ended leaves its place."""
    desk = Desk()
    streams = [begun(desk, filter="t/#") for _ in range(2)]
    refused = desk.answer(accept=STREAM, filter="t/#")
    assert refused.status == 429
    Stream(desk, desk.answer("Bearer a.b.c", accept=STREAM, filter="t/#"))
    assert desk.answer(None, accept=STREAM, filter="t/#").status == 429
    streams[0].stop()
    begun(desk, filter="t/#")


def test_a_client_that_leaves_leaves_nothing() -> None:
    desk = Desk()
    stream = begun(desk, filter="t/#")
    stream.events()
    assert stream.answer.more is not None
    waiting = stream.answer.more()
    stream.stop()
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    desk.broker.clock.advance(60)
    assert (desk.changes.closed, desk.calls.open) == (1, 0)


def test_without_stored_changes_there_are_values_and_no_streams() -> None:
    desk = Desk(stores=False)
    desk.retain("a")
    assert desk.answer(topic="a").status == 200
    assert desk.answer(accept=STREAM, topic="a").status == 409
