"""A chain asks its methods in order, and admits nobody whom none of them accepts, whatever fails."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent
from zope.interface import implementer

from holdfast.identity.addresses import Peer
from holdfast.identity.chain import Chain, Chains, EnhancedByListener, Entry
from holdfast.identity.interfaces import (
    ANSWER_PATIENCE,
    IGNORED,
    Accepted,
    Answer,
    Credentials,
    Denied,
    IAuthenticationMethod,
    NoAnswer,
    Principal,
    Verdict,
)
from holdfast.wire.reasons import ReasonCode
from tests.logs import logged

WRONG = ReasonCode.BAD_USER_NAME_OR_PASSWORD
DENIED = Denied(WRONG, "a wrong password")
PEER = Peer(ip_address("192.0.2.1"), 5555)


@implementer(IAuthenticationMethod)
class Says:
    """A method with one verdict; an exception is raised."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked = 0

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        self.asked += 1
        if isinstance(self.verdict, Exception):
            raise self.verdict
        verdict: Verdict | Deferred[Verdict] = self.verdict
        return verdict


def shown(username: str | None = "alice", password: bytes | None = b"secret", version: int = 5) -> Credentials:
    return Credentials("c", username, password, "default", version, PEER)


def chain_of(*methods: Says, guests: bool = False, clock: Clock | None = None) -> Chain:
    entries = [Entry(f"method-{number}", method) for number, method in enumerate(methods)]
    return Chain(entries, guests=guests, clock=clock or Clock())


def answer_of(chain: Chain, credentials: Credentials) -> Answer:
    """Return the chain's answer, which must be there."""
    answer = chain.authenticate(credentials)
    if not isinstance(answer, Deferred):
        return answer
    found: list[Answer] = []
    answer.addCallback(found.append)
    return found[0]


LATER = pytest.mark.parametrize("later", [False, True])


@LATER
def test_the_first_method_that_does_not_ignore_decides(later: bool) -> None:
    for verdict in (Accepted("alice"), DENIED):
        ignoring = Says(succeed(IGNORED) if later else IGNORED)
        deciding, last = Says(succeed(verdict) if later else verdict), Says(Accepted("mallory"))
        answer = answer_of(chain_of(ignoring, deciding, last), shown())
        assert answer == (DENIED if verdict is DENIED else Principal("c", "alice", frozenset(), "default", "192.0.2.1"))
        assert (ignoring.asked, deciding.asked, last.asked) == (1, 1, 0)


def test_the_identity_has_all_that_the_method_knows_and_the_name_of_the_method() -> None:
    answer = answer_of(chain_of(Says(IGNORED), Says(Accepted("al", frozenset({"staff"}), 17.5))), shown())
    assert isinstance(answer, Principal)
    assert answer == Principal("c", "al", frozenset({"staff"}), "default", "192.0.2.1")
    assert (answer.expires_at, answer.method) == (17.5, "method-1")


@LATER
@pytest.mark.parametrize("guests", [False, True])
@pytest.mark.parametrize("credentials", [shown(), shown(password=None), shown(password=b""), shown(None, b"token")])
def test_credentials_that_nobody_knows_are_denied_and_never_become_a_guest(
    credentials: Credentials, guests: bool, later: bool
) -> None:
    chain = chain_of(Says(succeed(IGNORED) if later else IGNORED), guests=guests)
    answer = answer_of(chain, credentials)
    assert isinstance(answer, Denied)
    assert answer.reason is WRONG


def test_only_a_listener_for_guests_admits_clients_without_credentials() -> None:
    credentials = shown(None, None)
    answer = answer_of(chain_of(Says(IGNORED)), credentials)
    assert isinstance(answer, Denied)
    assert answer.reason is ReasonCode.NOT_AUTHORIZED
    assert answer_of(chain_of(Says(IGNORED), guests=True), credentials) == Principal(
        "c", None, frozenset(), "default", "192.0.2.1"
    )
    assert answer_of(chain_of(Says(DENIED), guests=True), credentials) == DENIED


def test_a_method_may_accept_a_client_without_user_name_such_as_by_its_certificate() -> None:
    answer = answer_of(chain_of(Says(Accepted("sensor-1")), guests=True), shown(None, None))
    assert isinstance(answer, Principal)
    assert answer.username == "sensor-1"


@pytest.mark.parametrize("guests", [False, True])
@pytest.mark.parametrize("failing", [RuntimeError("away"), lambda: fail(RuntimeError("away")), None, "alice", True])
def test_a_method_that_fails_denies_and_the_next_one_is_not_asked(
    failing: Any, guests: bool, logged_failures: list[LogEvent]
) -> None:
    last = Says(Accepted("alice"))
    chain = chain_of(Says(failing() if callable(failing) else failing), last, guests=guests)
    answer = answer_of(chain, shown(None, None))
    assert isinstance(answer, Denied)
    assert answer.reason is ReasonCode.SERVER_UNAVAILABLE
    assert last.asked == 0
    assert [event["text"] for event in logged_failures] == ["authentication.method-0 failed, so it admits nobody"]
    logged_failures.clear()


def test_of_failures_in_a_row_the_first_one_is_logged_and_the_end_of_them(logged_failures: list[LogEvent]) -> None:
    method = Says(RuntimeError("away"))
    chain = chain_of(method)
    with logged() as log:
        for _ in range(3):
            answer_of(chain, shown())
        method.verdict = IGNORED
        answer_of(chain, shown())
    assert len(log) == 2
    logged_failures.clear()


def test_a_method_that_does_not_answer_in_time_denies() -> None:
    clock = Clock()
    silent: Deferred[Verdict] = Deferred()
    answer = chain_of(Says(silent), Says(Accepted("alice")), clock=clock).authenticate(shown())
    assert isinstance(answer, Deferred)
    found: list[Answer] = []
    answer.addCallback(found.append)
    clock.advance(ANSWER_PATIENCE - 1)
    assert not found
    with logged() as log:
        clock.advance(1)
    assert "no answer within 30 s" in str(log)
    assert [one.reason for one in found if isinstance(one, Denied)] == [ReasonCode.SERVER_UNAVAILABLE]


NO_NAMES = ["", "\0", "a\0b", "a\nb", "\x7f", "a\x85b"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_user_name_that_is_empty_or_has_control_characters_is_no_users(name: str) -> None:
    """No method is asked about it, and none can make it a user."""
    method = Says(Accepted("alice"))
    for guests in (False, True):
        answer = answer_of(chain_of(method, guests=guests), shown(name))
        assert isinstance(answer, Denied)
        assert answer.reason is WRONG
    assert method.asked == 0
    answer = answer_of(chain_of(Says(Accepted(name)), guests=True), shown())
    assert isinstance(answer, Denied)


@pytest.mark.parametrize("credentials", [shown(), shown(""), shown(None, b"token"), shown(None, None)])
def test_without_methods_nobody_judges_credentials_and_guests_have_no_names(credentials: Credentials) -> None:
    """So listeners for guests were before there were passwords."""
    guest = Principal("c", None, frozenset(), "default", "192.0.2.1")
    assert answer_of(chain_of(guests=True), credentials) == guest
    answer = answer_of(chain_of(), credentials)
    assert isinstance(answer, Denied)
    assert answer.reason is ReasonCode.NOT_AUTHORIZED


@given(
    st.lists(st.sampled_from([IGNORED, DENIED, Accepted("u"), NoAnswer("away")]), min_size=1, max_size=5),
    st.sampled_from([None, "", "alice"]),
    st.sampled_from([None, b"", b"secret"]),
    st.booleans(),
)
def test_nobody_is_admitted_but_accepted_users_and_guests_without_credentials(
    verdicts: list[Any], username: str | None, password: bytes | None, guests: bool
) -> None:
    answer = answer_of(chain_of(*map(Says, verdicts), guests=guests), shown(username, password))
    first = next((verdict for verdict in verdicts if verdict is not IGNORED), None)
    if username == "":
        assert isinstance(answer, Denied)
    elif isinstance(first, Accepted):
        assert isinstance(answer, Principal)
        assert answer.username == "u"
    elif first is None and guests and username is None and password is None:
        assert isinstance(answer, Principal)
        assert answer.username is None
    else:
        assert isinstance(answer, Denied)


def test_each_listener_has_a_chain_and_authentication_methods_of_its_own() -> None:
    chains = Chains({"default": chain_of(Says(Accepted("alice"))), "other": chain_of(Says(DENIED))})
    assert isinstance(chains.authenticate(shown()), Principal)
    assert chains.authenticate(Credentials("c", "alice", b"secret", "other", 4)) == DENIED
    assert isinstance(chains.authenticate(Credentials("c", "alice", b"secret", "unknown", 4)), Denied)
    assert EnhancedByListener({}).begin("SCRAM-SHA-256", shown()) is None
