"""Keys from a server: fetched when they are needed, rarely, and kept while the server is away."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast.identity.http_client import Answer, HTTPClient, RequestFailed
from holdfast.identity.token_keys import FETCH_PAUSE, Freshness, KeyRing, NoKeys, ServedKeys, key_set
from tests.identity.tokens.issuing import jwk, jwks


class Server(HTTPClient):
    """Answers requests when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Deferred[Answer]] = []

    def request(self, method: bytes, headers: Any, body: bytes | None = None) -> Deferred[Answer]:
        assert (method, body) == (b"GET", None)
        self.requests.append(Deferred())
        return self.requests[-1]

    def publish(self, *kids: str, status: int = 200) -> None:
        self.requests[-1].callback(Answer(status, "application/json", jwks(*[jwk("P-256", kid) for kid in kids])))

    def fail(self) -> None:
        self.requests[-1].errback(Failure(RequestFailed("no answer within 5 s")))


class Ring:
    """What one token was told."""

    def __init__(self, answer: KeyRing | NoKeys | Deferred[KeyRing | NoKeys]) -> None:
        self.found: list[KeyRing | NoKeys] = []
        if isinstance(answer, Deferred):
            answer.addCallback(self.found.append)
        else:
            self.found.append(answer)

    @property
    def kids(self) -> object:
        """Which of the Key IDs a and b are known; None while the token waits; "none" without keys."""
        if not self.found:
            return None
        (ring,) = self.found
        return "none" if isinstance(ring, NoKeys) else {kid for kid in ("a", "b") if ring.knows(kid)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def keys(server: Server, clock: Clock) -> ServedKeys:
    clock.advance(1000)
    return ServedKeys(server, lambda document: key_set(document, ()), clock, "https://x", Freshness(300, 3600))


def asked(keys: ServedKeys, kid: str | None = "a") -> Ring:
    return Ring(keys.ring(kid))


def test_nothing_is_fetched_before_a_token_comes(keys: ServedKeys, server: Server) -> None:
    assert not server.requests


def test_the_first_tokens_wait_for_one_fetch(keys: ServedKeys, server: Server) -> None:
    waiting = [asked(keys), asked(keys, "b"), asked(keys, None)]
    assert [each.kids for each in waiting] == [None] * 3
    server.publish("a", "b")
    assert [each.kids for each in waiting] == [{"a", "b"}] * 3
    assert len(server.requests) == 1


def test_known_keys_judge_at_once(keys: ServedKeys, server: Server, clock: Clock) -> None:
    asked(keys)
    server.publish("a")
    clock.advance(299)
    assert asked(keys).kids == {"a"}
    assert len(server.requests) == 1


def test_old_keys_judge_while_they_are_fetched_again(keys: ServedKeys, server: Server, clock: Clock) -> None:
    asked(keys)
    server.publish("a", "b")
    clock.advance(300)
    assert asked(keys).kids == {"a", "b"}
    assert len(server.requests) == 2
    server.publish("b")
    assert asked(keys, "b").kids == {"b"}


def test_an_unknown_key_is_asked_for_but_not_often(keys: ServedKeys, server: Server, clock: Clock) -> None:
    """Strangers can invent Key IDs."""
    asked(keys)
    server.publish("a")
    for _ in range(100):
        assert asked(keys, "b").kids == {"a"}
    assert len(server.requests) == 1
    clock.advance(FETCH_PAUSE)
    waiting = [asked(keys, "b") for _ in range(3)]
    server.publish("a", "b")
    assert [each.kids for each in waiting] == [{"a", "b"}] * 3
    assert len(server.requests) == 2


def test_a_server_that_is_away_leaves_the_keys_for_a_while(keys: ServedKeys, server: Server, clock: Clock) -> None:
    asked(keys)
    server.publish("a")
    for _ in range(11):
        clock.advance(300)
        assert asked(keys).kids == {"a"}
        server.fail()
    clock.advance(300)
    late = asked(keys)
    server.fail()
    assert late.kids == "none"


@pytest.mark.parametrize("status", [301, 404, 500])
def test_without_a_first_answer_there_are_no_keys(keys: ServedKeys, server: Server, clock: Clock, status: int) -> None:
    waiting = asked(keys)
    server.publish("a", status=status)
    assert waiting.kids == "none"
    assert asked(keys).kids == "none"  # without another fetch
    assert len(server.requests) == 1
    clock.advance(FETCH_PAUSE)
    waiting = asked(keys)
    server.publish("a")
    assert waiting.kids == {"a"}


def test_a_broken_document_changes_nothing(keys: ServedKeys, server: Server, clock: Clock) -> None:
    asked(keys)
    server.publish("a")
    clock.advance(300)
    asked(keys)
    server.publish()
    assert asked(keys).kids == {"a"}


def test_a_client_that_gives_up_leaves_the_others_waiting(keys: ServedKeys, server: Server) -> None:
    lost = keys.ring("a")
    other = asked(keys)
    assert isinstance(lost, Deferred)
    lost.addErrback(lambda _: None)
    lost.cancel()
    server.publish("a")
    assert other.kids == {"a"}


def test_an_answer_that_comes_at_once(clock: Clock) -> None:
    class Quick(Server):
        def request(self, method: bytes, headers: Any, body: bytes | None = None) -> Deferred[Answer]:
            answer = super().request(method, headers, body)
            self.publish("a")
            return answer

    quick = ServedKeys(Quick(), lambda document: key_set(document, ()), clock, "https://x")
    assert asked(quick).kids == {"a"}
