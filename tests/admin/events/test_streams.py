"""Streams of events: what they send, when, to whom, and what a slow or a gone client costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast.admin.api.events import EventCalls
from holdfast.admin.api.happenings import Happenings, Tell
from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from holdfast.changes.recent import StoredChange, Taken
from holdfast.changes.tokens import Token
from holdfast.changes.watch import NotStored
from holdfast.core.messages import ChangeKind
from tests.storage.doubles import result_of

READER = Caller("key reader", None, frozenset({Scope.READ}), Via.KEY)
HOSTILE = 'a\nevent: reset\ndata: {}\n\n\u2028"\ud800'


def change(topic: str, revision: int, payload: bytes = b"x") -> StoredChange:
    return StoredChange(topic, revision, ChangeKind.SET, 0, size=len(payload), payload=payload)


class Changes:
    """Follows changes that the test gives."""

    def __init__(self) -> None:
        self.waiting: list[Taken] = []
        self.news: Callable[[], None] = lambda: None
        self.since: str | None = None
        self.closed = 0
        self.refusal: NotStored | None = None
        self.token = Token(b"an epoch", 1, b"a memory", 1)

    def follow(self, _topic_filter: str, token: str | None, news: Callable[[], None]) -> Deferred[Any]:
        self.since, self.news = token, news
        return succeed(self) if self.refusal is None else fail(self.refusal)

    def take(self, _most_bytes: int) -> Deferred[Taken]:
        if self.refusal is not None:
            return fail(self.refusal)
        return succeed(self.waiting.pop(0) if self.waiting else Taken((), self.token))

    def close(self) -> None:
        self.closed += 1

    def change(self, *changes: StoredChange, reset: str | None = None) -> None:
        self.waiting.append(Taken(changes, self.token, reset=reset))
        self.news()


class Source:
    """A source of happenings that the test tells."""

    def __init__(self) -> None:
        self.tell: Tell | None = None

    def __call__(self, tell: Tell) -> Callable[[], None]:
        self.tell = tell
        return self.stop

    def stop(self) -> None:
        self.tell = None

    def happens(self, **fields: Any) -> None:
        assert self.tell is not None
        self.tell(fields)


class Desk:
    """The call, and one stream at a time."""

    def __init__(self, stores: bool = True) -> None:
        self.clock = Clock()
        self.changes = Changes()
        self.clients = Source()
        sources = {"client": self.clients, "replay": Source(), "alarm": Source(), "monitor": Source()}
        self.happenings = Happenings(self.clock, sources, most=50, most_per_second=10)
        parts: tuple[Any, Happenings] = (self.changes if stores else None, self.happenings)
        self.calls = EventCalls(*parts, self.clock, most_of_one=2, most=3)
        self.table = RoutingTable(self.calls.routes)

    def answer(self, caller: Caller = READER, **arguments: str) -> Answer:
        call = Call("GET", "/events", arguments, caller=caller)
        found: Answer = result_of(self.table.answer(call))
        return found

    def refused(self, **arguments: str) -> Mapping[str, Any]:
        content: Mapping[str, Any] = json.loads(self.answer(READER, **arguments).body)
        return content


def more(answer: Answer) -> Deferred[bytes]:
    assert answer.more is not None
    return answer.more()


def stop(answer: Answer) -> None:
    assert answer.stopped is not None
    answer.stopped()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "retained"), ({"retained": "a/#/b"}, "retained"), ({"retained": ""}, "retained"),
        ({"retained": "a", "token": "x"}, "token"), ({"clients": "true", "token": "x"}, "token"),
        ({"clients": "perhaps"}, "clients"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_with_its_field(arguments: dict[str, str], field: str) -> None:
    """Nothing is left open."""
    desk = Desk()
    refusal = desk.refused(**arguments)
    assert (refusal["status"], refusal["field"]) == (400, field)
    assert desk.calls.open == 0


def test_a_quiet_stream_begins_at_once_and_pings_every_15_seconds() -> None:
    """Both tell the place, so that a browser resumes there even if nothing matched."""
    desk = Desk()
    answer = desk.answer(retained="#")
    assert (answer.content_type, dict(answer.headers)["X-Accel-Buffering"]) == ("text/event-stream", "no")
    token = desk.changes.token.text
    assert result_of(more(answer)) == f"retry: 3000\nid: {token}\n\n".encode()
    waiting = more(answer)
    desk.clock.pump([1] * 14)
    assert not waiting.called
    desk.clock.advance(1)
    assert result_of(waiting) == f": ping\nid: {token}\n\n".encode()
    stop(answer)


def test_changes_of_a_moment_go_in_one_piece_with_one_identifier() -> None:
    """No text of a client adds a line."""
    desk = Desk()
    answer = desk.answer(retained="#")
    result_of(more(answer))
    waiting = more(answer)
    desk.changes.change(change(HOSTILE, 1), change("big", 2, bytes(70_000)))
    desk.clock.advance(0.2)
    lines = result_of(waiting).decode("ascii").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["event", "data", "", "event", "id", "data", ""]
    first, second = (json.loads(line[6:]) for line in lines if line.startswith("data"))
    assert (first["topic"], first["payload"], first["revision"]) == (HOSTILE, "eA==", "1")
    assert (second["size"], second["payload_omitted"], "payload" in second) == (70_000, True, False)
    stop(answer)


def test_a_reset_comes_before_later_changes() -> None:
    desk = Desk()
    answer = desk.answer(retained="#", token=desk.changes.token.text)
    assert desk.changes.since == desk.changes.token.text
    desk.changes.change(change("a", 1), reset="too old")
    piece = result_of(more(answer)).decode()
    assert piece.index("event: reset\n") < piece.index("event: retained\n")
    assert '{"reason": "too old"}' in piece
    stop(answer)


def test_nothing_is_made_while_nobody_watches_or_when_the_client_is_gone() -> None:
    """The source runs from the first stream to the last one, and no timer is left."""
    desk = Desk()
    assert desk.clients.tell is None
    answers = [desk.answer(clients="true", retained="#") for _ in range(2)]
    for answer in answers:
        result_of(more(answer))
        more(answer)
    desk.clients.happens(event="connected")
    for answer in answers:
        stop(answer)
        stop(answer)
    assert desk.clients.tell is None
    assert (desk.changes.closed, desk.calls.open) == (2, 0)
    assert not desk.clock.getDelayedCalls()


def test_many_happenings_are_sampled_and_a_slow_client_learns_what_it_missed() -> None:
    desk = Desk()
    answer = desk.answer(clients="true")
    result_of(more(answer))
    for number in range(500):
        desk.clients.happens(number=number)
    desk.clock.advance(1)
    piece = result_of(more(answer)).decode()
    assert piece.count("event: client\n") == 11
    assert '{"event":"more","count":490}' in piece
    for _ in range(20):
        for number in range(10):
            desk.clients.happens(number=number)
        desk.clock.advance(1)
    piece = result_of(more(answer)).decode()
    assert piece.count("event: client\n") == 50
    assert "event: missed\n" in piece
    stop(answer)


def test_without_stored_changes_nobody_follows_retained_messages() -> None:
    """The refusal names the option. Streams of other events begin."""
    desk = Desk(stores=False)
    refusal = desk.refused(retained="#")
    assert (refusal["status"], refusal["code"]) == (409, "CHANGES_NOT_STORED")
    assert "retainer.changes.enable" in refusal["message"]
    assert desk.calls.open == 0
    assert desk.answer(clients="true").status == 200


def test_a_stream_ends_when_a_node_does_not_store_its_changes() -> None:
    """Its client comes back, and is refused."""
    desk = Desk()
    answer = desk.answer(retained="#")
    desk.changes.refusal = NotStored("node 2")
    assert result_of(more(answer)) == b""
    assert desk.answer(retained="#").status == 409


def test_streams_are_bounded_for_each_caller_and_in_all() -> None:
    """A stream that ends makes room."""
    desk = Desk()
    other = Caller("key other", None, frozenset({Scope.READ}), Via.KEY)
    open_ones = [desk.answer(clients="true") for _ in range(2)]
    assert desk.answer(clients="true").status == 429
    open_ones.append(desk.answer(other, clients="true"))
    assert desk.answer(other, clients="true").status == 429
    stop(open_ones[0])
    assert desk.answer(clients="true").status == 200
