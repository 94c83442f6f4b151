"""The question to an HTTP service, and its answers: only one that is wholly as described admits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast.identity.addresses import Peer
from holdfast.identity.http_client import Answer, Busy, HTTPClient, RequestFailed
from holdfast.identity.http_service import RememberedAnswers, ServiceMethod, ServiceOptions, request_body
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, PeerCertificate, Verdict
from holdfast.wire.reasons import ReasonCode

NOW = 1000.0
ALICE = Credentials("sensor-7", "alice", b"secret", "tls", 5)


class Service(HTTPClient):
    """Gives the same answer, or failure, to each request, and notes them."""

    def __init__(self, answer: Answer | Exception) -> None:
        self.answer = answer
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}

    def request(self, method: bytes, headers: Any, body: bytes | None = None) -> Deferred[Answer]:
        assert method == b"POST"
        assert body is not None
        self.bodies.append(body)
        self.headers = dict(headers)
        return fail(self.answer) if isinstance(self.answer, Exception) else succeed(self.answer)


def answer(status: int = 200, media_type: str = "application/json", **fields: object) -> Answer:
    return Answer(status, media_type, json.dumps(fields).encode())


ALLOW = answer(result="allow")


class Asked:
    """A method with its service and its clock."""

    def __init__(self, given: Answer | Exception = ALLOW, most: int = 100, **options: Any) -> None:
        self.clock = Clock()
        self.clock.advance(NOW)
        self.service = Service(given)
        self.remembered = RememberedAnswers(most, self.clock.seconds)
        self.method = ServiceMethod(
            self.service, ServiceOptions(**options), self.remembered, lambda: round(self.clock.seconds() * 1000)
        )

    def verdict(self, credentials: Credentials = ALICE) -> Verdict:
        found = self.method.judge(credentials)
        if not isinstance(found, Deferred):
            return found
        verdicts: list[Verdict] = []
        found.addCallback(verdicts.append)
        (verdict,) = verdicts
        return verdict


def unavailable(given: Answer | Exception) -> str:
    """Return why an answer does not count. It is no failed login."""
    verdict = Asked(given).verdict()
    assert isinstance(verdict, Denied)
    assert verdict.reason is ReasonCode.SERVER_UNAVAILABLE
    return verdict.explanation


def test_the_question_has_all_that_is_known() -> None:
    from ipaddress import ip_address

    certificate = PeerCertificate("sensor-7", (), "CN=sensor-7")
    peer = Peer(ip_address("192.0.2.1"), 5555)
    asked = Asked(headers={"Authorization": "Bearer x"})
    asked.verdict(Credentials("c", "alice", b"secret", "tls", 4, peer, certificate))
    assert json.loads(asked.service.bodies[0]) == {
        "username": "alice", "password": "secret", "clientid": "c", "peerhost": "192.0.2.1", "listener": "tls",
        "proto_ver": 4, "cert_common_name": "sensor-7", "cert_subject": "CN=sensor-7",
    }  # fmt: skip
    assert asked.service.headers == {
        "Authorization": "Bearer x", "Content-Type": "application/json", "Accept": "application/json",
    }  # fmt: skip


@given(st.text(min_size=1), st.text(min_size=1), st.text(), st.text())
def test_no_value_of_a_client_changes_the_structure(username: str, password: str, client: str, listener: str) -> None:
    """Parameter injection: each value is one JSON string, whatever is in it."""
    body = request_body(Credentials(client, username, password.encode("utf-8", "replace"), listener, 5))
    assert body is not None
    found = json.loads(body)
    assert len(found) == 8
    assert (found["username"], found["clientid"], found["listener"]) == (username, client, listener)
    assert body.isascii()
    assert b"\n" not in body


@pytest.mark.parametrize(
    ("username", "password"),
    [(None, None), ("", b""), ("alice", None), ("alice", b""), (None, b"x"), ("", b"x"), ("alice", b"\xff")],
)
def test_a_client_without_credentials_is_not_asked_about(username: str | None, password: bytes | None) -> None:
    """A service that compares an absent password with that of an unknown user finds them equal."""
    asked = Asked()
    assert asked.verdict(Credentials("c", username, password, "tls", 5)) is IGNORED
    assert not asked.service.bodies


def test_the_answers() -> None:
    assert Asked(ALLOW).verdict() == Accepted("alice")
    assert Asked(Answer(204, "", b"")).verdict() == Accepted("alice")
    assert Asked(answer(result="ignore")).verdict() is IGNORED
    denied = Asked(answer(result="deny", groups=["x"])).verdict()
    assert isinstance(denied, Denied)
    assert denied.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_groups_and_the_time_of_expiry() -> None:
    given = answer(result="allow", is_superuser=True, groups=["a"], expire_at=2000, unknown={"x": 1})
    assert Asked(given).verdict() == Accepted("alice", frozenset({"a", "administrators"}), 2000.0)
    assert Asked(given, superuser_group="su").verdict() == Accepted("alice", frozenset({"a", "su"}), 2000.0)
    assert isinstance(Asked(answer(result="allow", expire_at=1000)).verdict(), Denied)


@pytest.mark.parametrize(
    "given",
    [
        answer(301, result="allow"),
        answer(401, result="allow"),
        answer(404, result="allow"),
        answer(500, result="allow"),
        answer(201, result="allow"),
        answer(media_type="text/html", result="allow"),
        answer(media_type="", result="allow"),
        Answer(200, "application/json", b""),
        Answer(200, "application/json", b"allow"),
        Answer(200, "application/json", b'"allow"'),
        Answer(200, "application/json", b"[" * 60000),
        Answer(200, "application/json", b'{"result": "allow"'),
        Answer(200, "application/json", b"\xff"),
        answer(),
        answer(result="Allow"),
        answer(result=True),
        answer(result=None),
        answer(result=["allow"]),
        answer(result="allow", is_superuser="false"),
        answer(result="allow", is_superuser=1),
        answer(result="allow", groups="admin"),
        answer(result="allow", groups=[1]),
        answer(result="allow", groups=["g"] * 257),
        answer(result="allow", expire_at="2000"),
        answer(result="allow", expire_at=True),
        answer(result="allow", expire_at=-1),
        Answer(200, "application/json", b'{"result": "allow", "expire_at": NaN}'),
        Answer(200, "application/json", b'{"result": "allow", "ttl": Infinity}'),
        RequestFailed("no answer within 5 s"),
    ],
)
def test_everything_else_admits_nobody(given: Answer | Exception) -> None:
    assert unavailable(given)


def test_a_full_line_is_busy() -> None:
    verdict = Asked(Busy("too many")).verdict()
    assert isinstance(verdict, Denied)
    assert verdict.reason is ReasonCode.SERVER_BUSY


def test_an_unexpected_error_is_not_swallowed() -> None:
    """The chain logs it and denies."""
    found = Asked(KeyError("bug")).method.judge(ALICE)
    assert isinstance(found, Deferred)
    errors: list[Any] = []
    found.addErrback(errors.append)
    assert errors[0].check(KeyError)


# --- remembered answers


def test_nothing_is_remembered_by_default() -> None:
    asked = Asked()
    for _ in range(3):
        asked.verdict()
    assert (len(asked.service.bodies), len(asked.remembered)) == (3, 0)


def test_an_acceptance_is_remembered_for_its_time() -> None:
    asked = Asked(memory=60)
    for _ in range(3):
        assert asked.verdict() == Accepted("alice")
    assert len(asked.service.bodies) == 1
    asked.clock.advance(60)
    asked.verdict()
    assert len(asked.service.bodies) == 2
    asked.method.forget()
    asked.verdict()
    assert len(asked.service.bodies) == 3


@pytest.mark.parametrize(("ttl", "seconds"), [(0, 0), (5, 5), (10**9, 86400)])
def test_the_answer_may_tell_the_time(ttl: int, seconds: int) -> None:
    asked = Asked(answer(result="allow", ttl=ttl), memory=60)
    asked.verdict()
    asked.clock.advance(max(seconds - 1, 0))
    asked.verdict()
    assert len(asked.service.bodies) == (1 if seconds else 2)
    asked.clock.advance(1)
    asked.verdict()
    assert len(asked.service.bodies) == (2 if seconds else 3)


def test_a_remembered_identity_ends_with_its_expiry() -> None:
    asked = Asked(answer(result="allow", expire_at=NOW + 10), memory=60)
    asked.verdict()
    asked.clock.advance(10)
    asked.service.answer = answer(result="deny")
    assert isinstance(asked.verdict(), Denied)


@pytest.mark.parametrize("given", [answer(result="deny"), answer(result="ignore"), answer(500)])
def test_only_acceptances_are_remembered(given: Answer) -> None:
    asked = Asked(given, memory=60)
    asked.verdict()
    asked.service.answer = ALLOW
    assert asked.verdict() == Accepted("alice")


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
clients = st.builds(
    Credentials,
    client_id=names,
    username=names,
    password=names.map(str.encode),
    listener=st.sampled_from(["a", "b"]),
    protocol_version=st.sampled_from([4, 5]),
    certificate=st.none() | st.builds(PeerCertificate, st.none() | names, st.just(()), names),
)


@given(clients, clients)
def test_two_clients_share_an_answer_only_if_they_are_the_same_in_all_that_is_sent(
    one: Credentials, other: Credentials
) -> None:
    """Truncated or incomplete keys of a cache have let one client in as another."""
    asked = Asked(memory=60)
    asked.verdict(one)
    asked.service.answer = answer(result="deny")
    same = request_body(one) == request_body(other)
    assert isinstance(asked.verdict(other), Accepted if same else Denied)


@pytest.mark.parametrize("longer", [b"x" * 71 + b"a", b"x" * 71 + b"b", b"x" * 5000, b"secre", b"secret\x00"])
def test_a_password_counts_in_its_whole_length(longer: bytes) -> None:
    asked = Asked(memory=60)
    for password in (b"secret", b"x" * 71):
        asked.verdict(Credentials("c", "alice", password, "tls", 5))
    asked.service.answer = answer(result="deny")
    assert isinstance(asked.verdict(Credentials("c", "alice", longer, "tls", 5)), Denied)


def test_the_memory_is_bounded_and_has_no_password() -> None:
    asked = Asked(memory=60, most=3)
    for number in range(10):
        asked.verdict(Credentials("c", f"user{number}", b"hunter2", "tls", 5))
    assert len(asked.remembered) == 3
    assert "hunter2" not in repr(vars(asked.remembered))
    asked.verdict(Credentials("c", "user7", b"hunter2", "tls", 5))  # used again, so that user8 is the oldest
    asked.verdict(Credentials("c", "user10", b"hunter2", "tls", 5))
    before = len(asked.service.bodies)
    asked.verdict(Credentials("c", "user7", b"hunter2", "tls", 5))
    assert len(asked.service.bodies) == before
    asked.verdict(Credentials("c", "user8", b"hunter2", "tls", 5))
    assert len(asked.service.bodies) == before + 1
